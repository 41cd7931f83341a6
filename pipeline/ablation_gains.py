"""What each column of an ablation's table brings to a row: fine-tuning, mined negatives, BM25 beside them.

Legend of suffixes: Q questions, M measures.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline import significance
from pipeline.ablation import UNTUNED, Negatives
from pipeline.ablation_data import AblationData, Kind, values
from pipeline.ablation_table import groups

DENSE: tuple[Negatives, ...] = (UNTUNED, "bm25", "mined")
"""Columns of the model alone, each trained on from the one before."""

Column = tuple[str, Negatives, int | None, Kind]
"""Split, negatives, size and kind of measures."""
Means = Mapping[Column, Mapping[str, np.ndarray]]
"""{column: {row: [Q, M], the mean over seeds}}."""


def gains(data: AblationData) -> list[dict[str, Any]]:
    """Each column of a row against what it began with, by question: row, reference, reference_negatives, negatives,
    size, split, measure, mean (of the differences), low, high, p, p_holm (over the rows), wins, ties, losses.

    A dense column is tested against the row's dense one before it (`reference` is the row itself), `fusion` against the
    first stage that it joins (reference_negatives None), where that is the same in all cells.
    """
    means = {
        column: {row: np.mean([*by_seed.values()], axis=0) for row, by_seed in by_row.items()}
        for column, by_row in groups(data).items()
    }
    return [line for column in means for line in _column(data, means, column)]


def _column(data: AblationData, means: Means, column: Column) -> list[dict[str, Any]]:
    split, negatives, size, kind = column
    config, place = data.config, {"negatives": negatives, "size": size, "split": split}
    references: dict[str, tuple[str, Negatives | None]] = {}
    compared: dict[str, np.ndarray] = {}
    for row, after_QM in means[column].items():
        began = _before(data, means, column, row)
        if began is not None:
            reference, before, before_QM = began
            references[row] = reference, before
            compared |= {f"after {row}": after_QM, f"before {reference}": before_QM}
    pairs = [(f"after {row}", f"before {reference}") for row, (reference, _) in references.items()]
    if not pairs:
        return []
    samples = {"permutations": config.samples, "samples": config.samples, "seed": config.seed}
    found = significance.tabulated(compared, kind, pairs, config.test, **samples)["differences"]
    return [
        {"row": row, "reference": reference, "reference_negatives": before, **place, "measure": measure, **figure}
        for (row, (reference, before)), (a, b) in zip(references.items(), pairs, strict=True)
        for measure, figure in found[f"{a} - {b}"].items()
    ]


def _before(
    data: AblationData, means: Means, column: Column, row: str
) -> tuple[str, Negatives | None, np.ndarray] | None:
    """(row, negatives, [Q, M]) of what the column began with."""
    split, negatives, size, kind = column
    if negatives not in DENSE:
        first = data.first_stage.get(split)
        return None if first is None else (data.label, None, values(first, kind))
    for earlier in reversed(DENSE[: DENSE.index(negatives)]):
        of_rows = means.get((split, earlier, None if earlier == UNTUNED else size, kind), {})
        if row in of_rows:
            return row, earlier, of_rows[row]
    return None
