"""The figures of an ablation: every cell's, their means over seeds, and how the rows differ from the reference.

Legend of suffixes: Q questions, M measures.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.ablation import AblationConfig, CellConfig, Negatives
from pipeline.bootstrap import summary
from pipeline.errors import InputError
from pipeline.measures import MEASURES
from pipeline.significance import comparisons
from pipeline.stored import read_json, read_table
from pipeline.tables import TABLE, share_text
from pipeline.work import Metrics, Progress

SURE = 0.05
"""Corrected p below which a difference has its mark."""
BASELINE = "bm25"
"""The evaluation's run that is the same in all cells."""
Figure = Mapping[str, Any]
"""A row of table.json: row, negatives, size, seed, split, measure, mean, low, high."""


@dataclass(frozen=True)
class Measured:
    """An evaluation."""

    metrics: Mapping[str, Any]
    values: Mapping[str, Mapping[str, np.ndarray]]
    """{split: {system: [Q, M]}}."""


def read(config: AblationConfig, folders: Sequence[Path], progress: Progress) -> list[Measured]:
    """The evaluations of the cells. Raises InputError for unknown measures and for questions that are not the same."""
    found: list[Measured] = []
    asked: dict[str, list[str]] = {}
    for n, (cell, folder) in enumerate(zip(config.cells, folders, strict=True)):
        metrics = read_json(folder / "metrics.json", "labels", "splits", "config")
        table = read_table(folder / "per_query.parquet")
        absent = next((name for name in config.measures if name not in MEASURES), None)
        if absent is not None:
            raise InputError(f"measures: no {absent}; there are {', '.join(MEASURES)}")
        values: dict[str, dict[str, np.ndarray]] = {}
        for split, system, query_ids, values_QM in _runs(table):
            if query_ids != asked.setdefault(split, query_ids):
                first, other = config.cells[0].row, cell.row
                raise InputError(
                    f"rows {first} and {other} were measured on different questions of {split}: a row must not change "
                    "the collection or evaluate.relevance"
                )
            values.setdefault(split, {})[system] = values_QM
        found.append(Measured(metrics, values))
        progress(n + 1, len(folders), "cells")
    return found


def _runs(table: Any) -> Iterator[tuple[str, str, list[str], np.ndarray]]:
    """(split, system, its questions, [Q, M]) of a per_query.parquet."""
    frame = table.to_pandas()
    for (split, system), part in frame.groupby(["split", "system"], sort=False):
        yield str(split), str(system), part["query_id"].tolist(), part[list(MEASURES)].to_numpy(np.float64)


def figures(config: AblationConfig, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Every figure, one a dictionary: of the first stage where it is the same in all cells, of each cell as its
    evaluation has it, and with seed None of the mean over seeds."""
    rows = _baseline(measured)
    for cell, one in zip(config.cells, measured, strict=True):
        for negatives, system in cell.systems.items():
            for split, found in one.metrics["splits"].items():
                if system in found["systems"]:
                    rows += _rows((cell.row, negatives, cell.size, cell.seed, split), found["systems"][system])
    for (split, negatives, size), values in groups(config, measured).items():
        several = {row: by_seed for row, by_seed in values.items() if len(by_seed) > 1}
        alone = [row for row in values if row not in several]
        # One seed's interval is that of its evaluation.
        rows += [
            {**figure, "seed": None}
            for figure in rows
            if figure["row"] in alone
            and figure["seed"] is not None
            and (figure["split"], figure["negatives"], figure["size"]) == (split, negatives, size)
        ]
        if several:
            means = {row: np.mean([*by_seed.values()], axis=0) for row, by_seed in several.items()}
            for row, found in summary(means, [], config.samples, config.seed)["systems"].items():
                rows += _rows((row, negatives, size, None, split), found)
    return rows


def _rows(place: tuple[str, str | None, int | None, int | None, str], found: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = ("row", "negatives", "size", "seed", "split")
    return [
        {**dict(zip(names, place, strict=True)), "measure": measure, **{k: figure[k] for k in ("mean", "low", "high")}}
        for measure, figure in found.items()
    ]


def _baseline(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """The first stage's figures; none where cells have different ones."""
    first = measured[0].metrics
    rows = []
    for split, found in first["splits"].items():
        own = found["systems"].get(BASELINE)
        if own and all(one.metrics["splits"][split]["systems"].get(BASELINE) == own for one in measured):
            rows += _rows((first["labels"][BASELINE], None, None, None, split), own)
    return rows


def groups(
    config: AblationConfig, measured: Sequence[Measured]
) -> dict[tuple[str, Negatives, int | None], dict[str, dict[int, np.ndarray]]]:
    """{(split, negatives, size): {row: {seed: [Q, M]}}}."""
    found: dict[tuple[str, Negatives, int | None], dict[str, dict[int, np.ndarray]]] = {}
    for cell, one in zip(config.cells, measured, strict=True):
        for split, values in one.values.items():
            for negatives, system in cell.systems.items():
                if system in values:
                    group = found.setdefault((split, negatives, cell.size), {})
                    group.setdefault(cell.row, {})[cell.seed] = values[system]
    return found


def tests(config: AblationConfig, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Each row against the reference, by the means over seeds of each question: row, reference, negatives, size, split,
    measure, mean (of the differences), low, high, p, p_holm (over the rows), wins, ties, losses."""
    found = []
    for (split, negatives, size), values in groups(config, measured).items():
        if config.reference not in values:
            continue
        means = {row: np.mean([*by_seed.values()], axis=0) for row, by_seed in values.items()}
        pairs = [(row, config.reference) for row in means if row != config.reference]
        if not pairs:
            continue
        differences = summary(means, pairs, config.samples, config.seed)["differences"]
        tested = comparisons(means, pairs, config.test, config.samples, config.seed)
        for row, reference in pairs:
            own = f"{row} - {reference}"
            place = {"row": row, "reference": reference, "negatives": negatives, "size": size, "split": split}
            for measure, figure in differences[own].items():
                found.append({**place, "measure": measure, **figure, **tested[own][measure]})
    return found


@dataclass(frozen=True)
class Line:
    """A row of the table that is shown, of one measure and split."""

    row: str
    cells: Sequence[tuple[Figure | None, bool]]
    """(figure, whether it differs from the reference) of each column; None where the row has no run."""


def shown_split(figures: Sequence[Figure]) -> str:
    """What tables and curves show: dev, by which the papers compare, where there is one."""
    splits = [figure["split"] for figure in figures]
    return "dev" if "dev" in splits else splits[0]


def columns(config: AblationConfig) -> list[tuple[str, int | None]]:
    """(negatives, size) of the tables' columns."""
    sizes = list(dict.fromkeys(cell.size for cell in config.cells))
    kinds = [kind for kind in ("bm25", "mined") if any(kind in cell.systems for cell in config.cells)]
    return [(kind, size) for kind in kinds for size in sizes]


def lines(
    config: AblationConfig, figures: Sequence[Figure], tests: Sequence[Figure], split: str, measure: str
) -> list[Line]:
    """The table of a measure: the first stage, then the rows in their order."""
    own = [figure for figure in figures if (figure["split"], figure["measure"]) == (split, measure)]
    by_place = {(f["row"], f["negatives"], f["size"]): f for f in own if f["seed"] is None}
    sure = {
        (t["row"], t["negatives"], t["size"])
        for t in tests
        if (t["split"], t["measure"]) == (split, measure) and t["p_holm"] < SURE
    }
    rows = dict.fromkeys([f["row"] for f in own if f["negatives"] is None] + [cell.row for cell in config.cells])
    shown = []
    for row in rows:
        places = [(row, negatives, size) for negatives, size in columns(config)]
        cells = [(by_place.get(place), place in sure) for place in places]
        if (row, None, None) in by_place:  # it reads no training questions: one figure for all columns
            cells = [(by_place[row, None, None], False), *[(None, False)] * (len(places) - 1)]
        shown.append(Line(row, cells))
    return shown


def column_text(negatives: str, size: int | None, sizes: int) -> str:
    """`BM25 negatives, 1,000 questions`; `+ mined`."""
    kind = {"bm25": "BM25 negatives", "mined": "+ mined"}[negatives]
    return kind if sizes == 1 else f"{kind}, {'all' if size is None else f'{size:,}'}"


def headings(config: AblationConfig) -> list[str]:
    sizes = len({cell.size for cell in config.cells})
    return [column_text(negatives, size, sizes) for negatives, size in columns(config)]


def heading(measure: str) -> str:
    """What the field calls its mean: `MRR@10` of RR@10."""
    return TABLE.get(measure, measure)


def cell_text(cell: tuple[Figure | None, bool]) -> str:
    """`.497* [.475, .519]`; a dash where there is none."""
    figure, sure = cell
    if figure is None:
        return "–"
    interval = f"[{share_text(figure['low'])}, {share_text(figure['high'])}]"
    return f"{share_text(figure['mean'])}{'*' if sure else ''} {interval}"


def note(config: AblationConfig) -> str:
    """What the figures are, in a few lines."""
    seeds = len({cell.seed for cell in config.cells})
    over = f", means over {seeds} seeds of fine-tuning" if seeds > 1 else ""
    test = {"randomisation": "paired randomisation", "t": "paired t-test"}[config.test]
    rows = len({cell.row for cell in config.cells})
    holm = f" by Holm over {rows - 1} rows" if rows > 2 else ""
    against = f" * differs from {config.reference}: {test}, p < .05{holm}." if rows > 1 else ""
    return f"Mean [95 % interval] over questions{over}.{against}"


def markdown(config: AblationConfig, figures: Sequence[Figure], tests: Sequence[Figure]) -> str:
    """A table a measure, of the split that is shown."""
    split = shown_split(figures)
    parts = []
    for measure in config.measures:
        head = [f"{heading(measure)}, {split}", *headings(config)]
        body = [[line.row, *map(cell_text, line.cells)] for line in lines(config, figures, tests, split, measure)]
        rows = [f"| {' | '.join(row)} |" for row in (head, *body)]
        parts.append("\n".join([rows[0], "|---" * len(head) + "|", *rows[1:]]))
    return "\n\n".join([*parts, note(config)]) + "\n"


def flat(config: AblationConfig, figures: Sequence[Figure]) -> Metrics:
    """The shown figures as `coCondenser/mined/all/RR@10`."""
    split = shown_split(figures)
    return {
        "/".join([f["row"], f["negatives"], "all" if f["size"] is None else str(f["size"]), f["measure"]]): f["mean"]
        for f in figures
        if f["seed"] is None and f["negatives"] and f["split"] == split and f["measure"] in config.measures
    }


def drawn(config: AblationConfig) -> list[tuple[int, CellConfig]]:
    """(number, cell) of those whose curves are drawn: of the last size and the first seed."""
    last = config.cells[-1].size, config.cells[0].seed
    return [(n, cell) for n, cell in enumerate(config.cells) if (cell.size, cell.seed) == last]
