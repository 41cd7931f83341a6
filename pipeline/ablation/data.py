"""The data of an ablation's table, tests and page, collected from artifacts.

Legend of suffixes: Q questions, M measures.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.ablation.config import AblationConfig, CellConfig, Negatives
from pipeline.data.stored import read_json, read_table
from pipeline.errors import InputError
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.formatting import counted
from pipeline.report.trainings import Curve, dev_by_epoch, entropies, loss_by_epoch
from pipeline.runtime.work import Progress

if TYPE_CHECKING:
    import pyarrow

RUN_COLUMNS = ("row", "negatives", "size", "seed", "split")
"""Columns that identify a figure, and a run's questions."""
BASELINE = "bm25"
"""The evaluation's run that is the same in all cells."""
DIGEST = re.compile("[0-9a-f]{64}")
"""The name of an artifact's folder."""

Place = tuple[str, int | None, int]
"""Row, size and seed of a cell."""
Kind = tuple[str, ...]
"""MEASURES (of questions with a relevant passage) or HITS (of questions with answers)."""
MeasuredQuestions = Mapping[tuple[str, Kind], Sequence[str]]
"""{(split, kind): its questions}."""


class KindResults(NamedTuple):
    """A system's results on the questions of a kind."""

    query_ids: list[str]
    values_QM: np.ndarray


@dataclass(frozen=True)
class RunResults:
    """A system's results on a split."""

    figures: Mapping[str, Mapping[str, float]]
    """{measure: {mean, low, high}}, as in its evaluation."""
    questions: pd.DataFrame
    """query_id and one column per measure; NaN if the question is not of that kind."""
    cut_at: int | None = None
    """Length at which its lists were cut (pipeline/evaluate/shallow.py); None: not cut, or unknown."""

    @cached_property
    def measured(self) -> Mapping[Kind, KindResults]:
        """The results of each kind, for the questions of that kind."""
        query_ids = self.questions["query_id"].to_numpy()
        result: dict[Kind, KindResults] = {}
        for kind in (MEASURES, HITS):
            values = self.questions[[*kind]].to_numpy(np.float64)
            of_kind = ~np.isnan(values).any(axis=1)
            # In Fortran's order: the sum of a mean depends on it, and results keep their bytes.
            result[kind] = KindResults(query_ids[of_kind].tolist(), np.asfortranarray(values[of_kind]))
        return result


@dataclass(frozen=True)
class Curves:
    """A cell's curves."""

    loss: Curve | None
    """Loss of stage 1."""
    dev: Curve | None
    """MRR@10; None if stage 1 does not validate."""
    entropy: Mapping[str, Sequence[float]] | None
    """Entropy of [CLS] attention in nats by layer, of the pre-trained model and the last one."""


@dataclass(frozen=True)
class Cell:
    """A cell's results."""

    runs: Mapping[tuple[str, Negatives], RunResults]
    """{(split, negatives): run}."""
    curves: Curves | None
    """None: this cell has no curves."""
    inputs: Mapping[str, str]
    """{stage: digest} of its artifacts."""


@dataclass(frozen=True)
class AblationData:
    """The data of an ablation's files and page."""

    config: AblationConfig
    cells: Sequence[Cell]
    """In the order of the configuration's cells."""
    label: str
    """Label of the first stage."""
    first_stage: Mapping[str, RunResults]
    """{split: run}, if it is the same in all cells."""
    training_questions: int
    """Training questions of a cell that uses all of them."""
    collections: Sequence[str]
    """Digests; several only if machines built different bytes from one source."""


def cell_name(config: AblationConfig, n: int) -> str:
    """Returns `coCondenser, 1,000 questions, seed 42`, without the parts that all cells share."""
    cell = config.cells[n]
    parts = [cell.row]
    parts += [questions_text(cell.size)] if len({c.size for c in config.cells}) > 1 else []
    parts += [f"seed {cell.seed}"] if len({c.seed for c in config.cells}) > 1 else []
    return ", ".join(parts)


def questions_text(size: int | None) -> str:
    """Returns `1,000 questions` or `all questions`."""
    return "all questions" if size is None else counted(size, "questions")


def known_cut(cut_at: int | None) -> dict[str, int]:
    """Returns `cut_at` as a row's entry; empty if nothing was cut."""
    return {} if cut_at is None else {"cut_at": cut_at}


def measured_questions(runs: Iterable[tuple[str, RunResults]]) -> MeasuredQuestions:
    """Returns the questions on which each (split, run) was measured."""
    every = {(split, kind): one.query_ids for split, run in runs for kind, one in run.measured.items()}
    return {place: query_ids for place, query_ids in every.items() if query_ids}


def differing(one: MeasuredQuestions, other: MeasuredQuestions) -> str | None:
    """Returns the first split with different questions; None if there is none."""
    return next((place[0] for place in {**one, **other} if one.get(place) != other.get(place)), None)


def collect(
    config: AblationConfig, collection: Path, inputs: Mapping[str, Path | None], progress: Progress
) -> AblationData:
    """Returns the data of the evaluations, trainings and attentions in the folders `inputs`.

    Raises InputError if a cell has other questions than the first cell.
    """
    cells: list[Cell] = []
    baselines: list[dict[str, RunResults]] = []
    label = ""
    first: MeasuredQuestions = {}
    for n, cell in enumerate(config.cells):
        folders = {stage: inputs.get(f"{stage}_{n}") for stage in ("evaluate", "stage1", "attention")}
        evaluate = folders["evaluate"]
        assert evaluate is not None
        metrics = read_json(evaluate / "metrics.json", "labels", "splits")
        systems = _systems(metrics, read_table(evaluate / "per_query.parquet"))
        label = label or metrics["labels"].get(BASELINE, "")
        own = measured_questions((split, run) for (split, _), run in systems.items())
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


def _check_questions(config: AblationConfig, n: int, first: MeasuredQuestions, own: MeasuredQuestions) -> None:
    """Raises InputError if cell n was measured on other questions (`own`) than the `first` cell."""
    split = differing(first, own)
    if split is not None:
        both = f"{cell_name(config, 0)} and {cell_name(config, n)}"
        raise InputError(
            f"{both} were measured on different questions of {split}: a row must not change what is measured"
        )


def _systems(metrics: Mapping[str, Any], per_query: "pyarrow.Table") -> dict[tuple[str, str], RunResults]:
    """Returns {(split, system): run} of an evaluation, by qrels and by answers."""
    runs = {}
    for (split, system), part in per_query.to_pandas().groupby(["split", "system"], sort=False):
        judged = metrics["splits"][split]
        kinds = (judged["systems"], judged.get("answers", {}).get("systems", {}))
        figures = {name: figure for systems in kinds for name, figure in systems.get(system, {}).items()}
        questions = part[["query_id", *MEASURES, *HITS]].astype(dict.fromkeys((*MEASURES, *HITS), float))
        runs[str(split), str(system)] = RunResults(figures, questions, judged.get("cut_at", {}).get(system))
    return runs


def _same(one: RunResults | None, other: RunResults) -> bool:
    return one is not None and one.figures == other.figures


def _curves(cell: CellConfig, stage1: Path | None, attention: Path | None) -> Curves | None:
    if stage1 is None and attention is None:
        return None
    loss = loss_by_epoch(stage1, cell.epochs) if stage1 else None
    by_model = entropies(attention) if attention else None
    ends = {name: by_model[name] for name in ("pretrained", next(reversed(by_model)))} if by_model else None
    return Curves(loss, dev_by_epoch(stage1) if stage1 else None, ends)


def _digests(folders: Mapping[str, Path | None]) -> dict[str, str]:
    return {name: folder.name for name, folder in folders.items() if folder and DIGEST.fullmatch(folder.name)}


def training_questions(collection: Path) -> int:
    """Returns the number of training questions with a relevant passage, which a cell of all questions uses."""
    train = [("split", "=", "train"), ("relevance", ">=", 1)]
    return len(read_table(collection / "qrels.parquet", ["query_id"], train)["query_id"].unique())
