"""The figures of an ablation: of each cell, means over seeds, and differences between rows and the reference.

Legend of suffixes: Q questions, M measures.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.ablation.config import UNTUNED, AblationConfig, CellConfig, Negatives
from pipeline.ablation.data import RUN_COLUMNS, AblationData, Kind, known_cut
from pipeline.evaluate.rows import FUSION
from pipeline.evaluate.shallow import shallow
from pipeline.evaluate.significance import paired
from pipeline.evaluate.significance.bootstrap import summary
from pipeline.evaluate.tables.short_tables import TABLE
from pipeline.formatting import share_text
from pipeline.runtime.work import Metrics

HEADINGS: dict[str, str] = {UNTUNED: "not fine-tuned", "bm25": "BM25 negatives", "mined": "+ mined", FUSION: "+ BM25"}
Figure = Mapping[str, Any]
"""A row of table.json: row, negatives, size, seed, split, measure, mean, low, high; cut_at if lists were cut."""
Group = tuple[str, Negatives, int | None, Kind]
"""Split, negatives, size and kind of measures, which are averaged and tested together."""


def figures(data: AblationData) -> list[dict[str, Any]]:
    """Returns all figures, one dictionary each: of the first stage, of each cell (as in its evaluation), and of means
    over seeds (with seed None)."""
    config, rows = data.config, []
    cuts: dict[tuple[str, str, int | None, str], int] = {}
    for split, run in data.first_stage.items():
        rows += _rows((data.label, None, None, None, split), run.figures, run.cut_at)
    for cell, one in zip(config.cells, data.cells, strict=True):
        # One seed's mean and interval are those of its evaluation.
        seeds = [cell.seed] if _seeds(config, cell) > 1 else [cell.seed, None]
        for (split, negatives), run in one.runs.items():
            size = _size(cell, negatives)
            for seed in [None] if negatives == UNTUNED else seeds:
                rows += _rows((cell.row, negatives, size, seed, split), run.figures, run.cut_at)
            if run.cut_at is not None:
                place = cell.row, negatives, size, split
                cuts[place] = min(run.cut_at, cuts.get(place, run.cut_at))
    for (split, negatives, size, kind), by_row in groups(data).items():
        means = {row: np.mean([*by_seed.values()], axis=0) for row, by_seed in by_row.items() if len(by_seed) > 1}
        if means:
            for row, by_measure in summary(means, kind, [], config.samples, config.seed)["systems"].items():
                rows += _rows((row, negatives, size, None, split), by_measure, cuts.get((row, negatives, size, split)))
    return rows


def _seeds(config: AblationConfig, cell: CellConfig) -> int:
    return sum((other.row, other.size) == (cell.row, cell.size) for other in config.cells)


def _size(cell: CellConfig, negatives: Negatives) -> int | None:
    """Returns the size of a run's column."""
    return None if negatives == UNTUNED else cell.size


def _rows(
    place: tuple[str, str | None, int | None, int | None, str], by_measure: Mapping[str, Any], cut_at: int | None
) -> list[dict[str, Any]]:
    return [
        {
            **dict(zip(RUN_COLUMNS, place, strict=True)),
            "measure": measure,
            **{k: figure[k] for k in ("mean", "low", "high")},
            **known_cut(cut_at),
        }
        for measure, figure in by_measure.items()
    ]


def groups(data: AblationData) -> dict[Group, dict[str, dict[int, np.ndarray]]]:
    """Returns {group: {row: {seed: [Q, M]}}}."""
    by_group: dict[Group, dict[str, dict[int, np.ndarray]]] = {}
    for cell, one in zip(data.config.cells, data.cells, strict=True):
        for (split, negatives), run in one.runs.items():
            for kind, (_, values_QM) in run.measured.items():
                if len(values_QM):
                    group = by_group.setdefault((split, negatives, _size(cell, negatives), kind), {})
                    group.setdefault(cell.row, {})[cell.seed] = values_QM
    return by_group


def tests(data: AblationData) -> list[dict[str, Any]]:
    """Returns each row compared with the reference, by each question's mean over seeds: row, reference, negatives,
    size, split, measure, mean (of the differences), low, high, p, p_holm (over the rows), wins, ties, losses."""
    config, rows = data.config, []
    for (split, negatives, size, kind), by_row in groups(data).items():
        others = [row for row in by_row if row != config.reference]
        if config.reference not in by_row or not others:
            continue
        means = {row: np.mean([*by_seed.values()], axis=0) for row, by_seed in by_row.items()}
        place = {"reference": config.reference, "negatives": negatives, "size": size, "split": split}
        rows += differences(config, kind, means, {(row, config.reference): {"row": row, **place} for row in others})
    return rows


def differences(
    config: AblationConfig,
    kind: Kind,
    means: Mapping[str, np.ndarray],
    pairs: Mapping[tuple[str, str], Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Returns a line for each pair and measure, from {name: [Q, M]}: the fields in `pairs`, then measure, mean, low,
    high, p, p_holm (over the pairs), wins, ties, losses."""
    if not pairs:
        return []
    samples = {"permutations": config.samples, "samples": config.samples, "seed": config.seed}
    by_pair = paired.tabulated(means, kind, [*pairs], config.test, **samples)["differences"]
    return [
        {**place, "measure": measure, **figure}
        for (a, b), place in pairs.items()
        for measure, figure in by_pair[f"{a} - {b}"].items()
    ]


@dataclass(frozen=True)
class Line:
    """A row of the shown table, of one measure and split."""

    row: str
    cells: Sequence[tuple[Figure | None, bool]]
    """(figure, whether it differs from the reference) of each column; figure None if the row has no run."""


def splits(figures: Sequence[Figure]) -> list[str]:
    """Returns the splits, dev first: the papers compare on it for MS MARCO."""
    return sorted({figure["split"] for figure in figures})


def measures_of(config: AblationConfig, figures: Sequence[Figure], split: str) -> list[str]:
    """Returns the shown measures that the split has: it has hits if its questions have answers."""
    existing = {figure["measure"] for figure in figures if figure["split"] == split}
    return [measure for measure in config.measures if measure in existing]


def table_columns(config: AblationConfig) -> list[tuple[str, int | None]]:
    """Returns (negatives, size) of the tables' columns."""
    sizes = list(dict.fromkeys(cell.size for cell in config.cells))
    shown = [negatives for negatives in HEADINGS if any(negatives in cell.systems for cell in config.cells)]
    return [(negatives, size) for negatives in shown for size in (sizes if negatives != UNTUNED else [None])]


def table_lines(
    config: AblationConfig, figures: Sequence[Figure], tests: Sequence[Figure], split: str, measure: str
) -> list[Line]:
    """Returns the table of a measure: the first stage, then the rows in their order."""
    own = [figure for figure in figures if (figure["split"], figure["measure"]) == (split, measure)]
    by_place = {(f["row"], f["negatives"], f["size"]): f for f in own if f["seed"] is None}
    sure = {
        (t["row"], t["negatives"], t["size"])
        for t in tests
        if (t["split"], t["measure"]) == (split, measure) and paired.is_significant(t)
    }
    rows = dict.fromkeys([f["row"] for f in own if f["negatives"] is None] + [cell.row for cell in config.cells])
    shown = []
    for row in rows:
        places = [(row, negatives, size) for negatives, size in table_columns(config)]
        cells = [(by_place.get(place), place in sure) for place in places]
        if (row, None, None) in by_place:  # it uses no training questions: one figure for all columns
            cells = [(by_place[row, None, None], False), *[(None, False)] * (len(places) - 1)][: len(places)]
        shown.append(Line(row, cells))
    return shown


def column_text(negatives: str, size: int | None, sizes: int) -> str:
    """Returns `BM25 negatives, 1,000`, or `+ mined` if there is only one size."""
    text = HEADINGS[negatives]
    return text if sizes == 1 or negatives == UNTUNED else f"{text}, {'all' if size is None else f'{size:,}'}"


def headings(config: AblationConfig) -> list[str]:
    sizes = len({cell.size for cell in config.cells})
    return [column_text(negatives, size, sizes) for negatives, size in table_columns(config)]


def heading(measure: str) -> str:
    """Returns the usual name of the measure's mean: `MRR@10` for RR@10."""
    return TABLE.get(measure, measure)


def cell_text(cell: tuple[Figure | None, bool]) -> str:
    """Returns `.497* [.475, .519]`; a dash if there is no figure."""
    figure, sure = cell
    if figure is None:
        return "–"
    interval = f"[{share_text(figure['low'])}, {share_text(figure['high'])}]"
    return f"{share_text(figure['mean'])}{'*' if sure else ''} {interval}"


def note(config: AblationConfig, figures: Sequence[Figure], tests: Sequence[Figure]) -> str:
    """Returns an explanation of the figures, in a few sentences."""
    seeds = Counter((cell.row, cell.size) for cell in config.cells).values()
    over = f", means over {_range(seeds)} seeds of fine-tuning" if max(seeds) > 1 else ""
    on_dev = any(figure["negatives"] == FUSION and figure["split"] == "dev" for figure in figures)
    joined = f" {HEADINGS[FUSION]}: where dev chose the way of fusion, its figures on dev flatter it." if on_dev else ""
    cut = "".join(f" {line}" for line in shallow_notes(config, figures))
    return f"Mean [95 % interval] over questions{over}.{marked(config, tests)}{joined}{cut}"


def shallow_notes(config: AblationConfig, figures: Sequence[Figure]) -> list[str]:
    """Returns sentences about shown measures that are deeper than lists, one for equal runs:
    `dev, + mined: no list is ...`.

    A column with equal rows is named by its heading, the first stage by its label.
    """
    sizes, notes = len({cell.size for cell in config.cells}), []
    for split in splits(figures):
        measures, columns = measures_of(config, figures, split), dict[str, dict[str, str]]()
        for f in (f for f in figures if f["split"] == split):
            column = f["row"] if f["negatives"] is None else column_text(f["negatives"], f["size"], sizes)
            columns.setdefault(column, {})[f["row"]] = shallow(f.get("cut_at"), measures)
        named: dict[str, list[str]] = {}
        for column, by_row in columns.items():
            for row, text in by_row.items():
                named.setdefault(text, []).append(column if len({*by_row.values()}) == 1 else f"{row} ({column})")
        for text, names in named.items():
            which = f", {' and '.join(dict.fromkeys(names))}" if len(named) > 1 else ""
            notes += [f"{split}{which}: {text}."] if text else []
    return notes


def marked(config: AblationConfig, tests: Sequence[Figure]) -> str:
    """Returns the meaning of a star, with the number of comparisons of Holm's correction; empty without comparisons."""
    text = tested_text(config, tests, "p < .05")
    return f" * differs from {config.reference}: {text}." if text else ""


def tested_text(config: AblationConfig, lines: Sequence[Figure], p: str) -> str:
    """Returns `paired randomisation, p < .05 by Holm over 3 comparisons` for `tests` or `gains`; empty without any."""
    counts = Counter((t["split"], t["negatives"], t["size"], t["measure"]) for t in lines).values()
    if not counts:
        return ""
    holm = f" by Holm over {_range(counts)} comparisons" if max(counts) > 1 else ""
    test = {"randomisation": "paired randomisation", "t": "paired t-test"}[config.test]
    return f"{test}, {p}{holm}"


def _range(counts: Collection[int]) -> str:
    """Returns `2` or `1 to 2`."""
    least, most = min(counts), max(counts)
    return str(most) if least == most else f"{least} to {most}"


def markdown(config: AblationConfig, figures: Sequence[Figure], tests: Sequence[Figure]) -> str:
    """Returns a Markdown table for each split and measure."""
    parts = []
    for split in splits(figures):
        for measure in measures_of(config, figures, split):
            head = [f"{heading(measure)}, {split}", *headings(config)]
            body = [
                [line.row, *map(cell_text, line.cells)] for line in table_lines(config, figures, tests, split, measure)
            ]
            rows = [f"| {' | '.join(row)} |" for row in (head, *body)]
            parts.append("\n".join([rows[0], "|---" * len(head) + "|", *rows[1:]]))
    return "\n\n".join([*parts, note(config, figures, tests)]) + "\n"


def flat_figures(config: AblationConfig, figures: Sequence[Figure]) -> Metrics:
    """Returns the shown figures as `dev/coCondenser/mined/all/RR@10`."""
    return {
        "/".join([f["split"], f["row"], f["negatives"], str(f["size"] or "all"), f["measure"]]): f["mean"]
        for f in figures
        if f["seed"] is None and f["negatives"] and f["measure"] in config.measures
    }
