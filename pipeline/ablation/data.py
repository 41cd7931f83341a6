"""All that an ablation's table, tests and page are made of, as it is collected from artifacts.

Legend of suffixes: Q questions, M measures.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pipeline.ablation.config import AblationConfig, CellConfig, Negatives
from pipeline.data.stored import read_json, read_table
from pipeline.errors import InputError
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.formatting import counted
from pipeline.report.histories import Curve, dev_by_epoch, entropies, loss_by_epoch
from pipeline.runtime.work import Progress

if TYPE_CHECKING:
    import pyarrow

RUN_COLUMNS = ("row", "negatives", "size", "seed", "split")
"""Of a figure and of a run's questions."""
BASELINE = "bm25"
"""The evaluation's run that is the same in all cells."""
DIGEST = re.compile("[0-9a-f]{64}")
"""The name of an artifact's folder."""

Place = tuple[str, int | None, int]
"""Row, size and seed of a cell."""
Kind = tuple[str, ...]
"""MEASURES, of the questions with a relevant passage, or HITS, of those with answers."""
Asked = Mapping[tuple[str, Kind], Sequence[str]]
"""{(split, kind): its questions}."""


@dataclass(frozen=True)
class Run:
    """What a system found on a split."""

    figures: Mapping[str, Mapping[str, float]]
    """{measure: {mean, low, high}}, as its evaluation has them."""
    questions: pd.DataFrame
    """query_id and a column a measure; none (NaN) where the question is not of its kind."""
    cut_at: int | None = None
    """Where its lists were cut (pipeline/evaluate/shallow.py); None: nowhere, or not known of an older evaluation."""


@dataclass(frozen=True)
class Curves:
    """What is drawn of a cell."""

    loss: Curve | None
    """Of stage 1."""
    dev: Curve | None
    """MRR@10; None where stage 1 does not validate."""
    entropy: Mapping[str, Sequence[float]] | None
    """Of [CLS]'s attention in nats by layer, of the pre-trained model and the last one."""


@dataclass(frozen=True)
class Cell:
    """What is known of a cell beside its configuration."""

    runs: Mapping[tuple[str, Negatives], Run]
    """{(split, negatives): run}."""
    curves: Curves | None
    """None: nothing of it is drawn."""
    inputs: Mapping[str, str]
    """{stage: digest} of the artifacts that it was read from."""


@dataclass(frozen=True)
class AblationData:
    """All that the files and the page of an ablation are made of."""

    config: AblationConfig
    cells: Sequence[Cell]
    """In the order of the configuration's."""
    label: str
    """The first stage's."""
    first_stage: Mapping[str, Run]
    """{split: run}, where it is the same in all cells."""
    training_questions: int
    """Those that a cell of all questions is trained on."""
    collections: Sequence[str]
    """Digests; several only where machines made other bytes of one source."""


def cell_name(config: AblationConfig, n: int) -> str:
    """`coCondenser, 1,000 questions, seed 42`, without what all cells share."""
    cell = config.cells[n]
    parts = [cell.row]
    parts += [questions_text(cell.size)] if len({c.size for c in config.cells}) > 1 else []
    parts += [f"seed {cell.seed}"] if len({c.seed for c in config.cells}) > 1 else []
    return ", ".join(parts)


def questions_text(size: int | None) -> str:
    """`1,000 questions`; `all questions`."""
    return "all questions" if size is None else counted(size, "questions")


def values(run: Run, kind: Kind) -> np.ndarray:
    """[Q, M] of the questions of a kind."""
    return of_kind(run, kind)[[*kind]].to_numpy(np.float64)


def of_kind(run: Run, kind: Kind) -> pd.DataFrame:
    """The questions of a kind, with all their columns."""
    return run.questions.dropna(subset=[*kind])


def known_cut(cut_at: int | None) -> dict[str, int]:
    """`cut_at` as a row's entry; no entry where nothing was cut."""
    return {} if cut_at is None else {"cut_at": cut_at}


def asked(runs: Iterable[tuple[str, Run]]) -> Asked:
    """The questions that (split, run) were measured on."""
    found = {(split, kind): of_kind(run, kind)["query_id"].tolist() for split, run in runs for kind in (MEASURES, HITS)}
    return {place: query_ids for place, query_ids in found.items() if query_ids}


def differing(one: Asked, other: Asked) -> str | None:
    """The first split of which they have different questions."""
    return next((place[0] for place in {**one, **other} if one.get(place) != other.get(place)), None)


def collect(
    config: AblationConfig, collection: Path, given: Mapping[str, Path | None], progress: Progress
) -> AblationData:
    """What the evaluations, trainings and attentions hold, from the folders `given` to the stage.

    Raises InputError for questions that are not those of the first cell.
    """
    cells: list[Cell] = []
    baselines: list[dict[str, Run]] = []
    label = ""
    first: Asked = {}
    for n, cell in enumerate(config.cells):
        folders = {stage: given.get(f"{stage}_{n}") for stage in ("evaluate", "stage1", "attention")}
        evaluate = folders["evaluate"]
        assert evaluate is not None
        metrics = read_json(evaluate / "metrics.json", "labels", "splits")
        systems = _systems(metrics, read_table(evaluate / "per_query.parquet"))
        label = label or metrics["labels"].get(BASELINE, "")
        own = asked((split, run) for (split, _), run in systems.items())
        first = first or own
        _check_questions(config, n, first, own)
        negatives_of = {system: negatives for negatives, system in cell.systems.items()}
        runs = {(split, negatives_of[name]): run for (split, name), run in systems.items() if name in negatives_of}
        baselines.append({split: run for (split, name), run in systems.items() if name == BASELINE})
        cells.append(Cell(runs, _curves(cell, folders["stage1"], folders["attention"]), _digests(folders)))
        progress(n + 1, len(config.cells), "cells")
    same = {split: run for split, run in baselines[0].items() if all(_same(one.get(split), run) for one in baselines)}
    digests = [*_digests({"collection": collection}).values()]
    return AblationData(config, cells, label, same, training_questions(collection), digests)


def _check_questions(config: AblationConfig, n: int, first: Asked, own: Asked) -> None:
    """Raises InputError where cell n was measured on `own` questions that are not the `first` cell's."""
    split = differing(first, own)
    if split is not None:
        both = f"{cell_name(config, 0)} and {cell_name(config, n)}"
        raise InputError(
            f"{both} were measured on different questions of {split}: a row must not change what is measured"
        )


def _systems(metrics: Mapping[str, Any], per_query: "pyarrow.Table") -> dict[tuple[str, str], Run]:
    """{(split, system): run} of an evaluation, by judgements and by answers."""
    found = {}
    for (split, system), part in per_query.to_pandas().groupby(["split", "system"], sort=False):
        judged = metrics["splits"][split]
        kinds = (judged["systems"], judged.get("answers", {}).get("systems", {}))
        figures = {name: figure for systems in kinds for name, figure in systems.get(system, {}).items()}
        questions = part[["query_id", *MEASURES, *HITS]].astype(dict.fromkeys((*MEASURES, *HITS), float))
        found[str(split), str(system)] = Run(figures, questions, judged.get("cut_at", {}).get(system))
    return found


def _same(one: Run | None, other: Run) -> bool:
    return one is not None and one.figures == other.figures


def _curves(cell: CellConfig, stage1: Path | None, attention: Path | None) -> Curves | None:
    if stage1 is None and attention is None:
        return None
    loss = loss_by_epoch(stage1, cell.epochs) if stage1 else None
    looked = entropies(attention) if attention else None
    ends = {name: looked[name] for name in ("pretrained", next(reversed(looked)))} if looked else None
    return Curves(loss, dev_by_epoch(stage1) if stage1 else None, ends)


def _digests(folders: Mapping[str, Path | None]) -> dict[str, str]:
    return {name: folder.name for name, folder in folders.items() if folder and DIGEST.fullmatch(folder.name)}


def training_questions(collection: Path) -> int:
    """Those with a relevant passage: what a cell of all questions is trained on."""
    train = [("split", "=", "train"), ("relevance", ">=", 1)]
    return len(read_table(collection / "qrels.parquet", ["query_id"], train)["query_id"].unique())
