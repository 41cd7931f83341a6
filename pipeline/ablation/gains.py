"""Compares columns of an ablation's table within each row: the gain of a model from fine-tuning and mined negatives,
and the gain of BM25 from the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.ablation.config import UNTUNED, Negatives
from pipeline.ablation.data import AblationData
from pipeline.ablation.table import Group, differences, groups

DENSE: tuple[Negatives, ...] = (UNTUNED, "bm25", "mined")
"""Columns of the model without BM25, in the tables' order."""

BySeed = Mapping[int, np.ndarray]
"""{seed: [questions, measures]}."""


def gains(data: AblationData) -> list[dict[str, Any]]:
    """Returns each column of a row compared with another, by question: row, reference, reference_negatives, negatives,
    size, split, measure, mean (of the differences), low, high, p, p_holm (over the rows), wins, ties, losses.

    A dense column is compared with the dense one before it (`reference` is the row itself), `fusion` with the first
    stage (reference_negatives None) if that is the same in all cells. Means are over the seeds that both have.
    """
    by_group, lines = groups(data), []
    for group, by_row in by_group.items():
        split, negatives, size, kind = group
        alone = negatives in DENSE
        earlier, compared = _earlier(by_group, group) if alone else (None, _first_stage(data, group, by_row))
        means: dict[str, np.ndarray] = {}
        pairs: dict[tuple[str, str], dict[str, Any]] = {}
        for row, after in by_row.items():
            before, reference = compared.get(row, {}), row if alone else data.label
            seeds = [seed for seed in after if seed in before]
            if seeds:
                pair = f"after {row}", f"before {reference}"
                means |= {pair[0]: _mean(after, seeds), pair[1]: _mean(before, seeds)}
                place = {"negatives": negatives, "size": size, "split": split}
                pairs[pair] = {"row": row, "reference": reference, "reference_negatives": earlier, **place}
        lines += differences(data.config, kind, means, pairs)
    return lines


def _earlier(
    by_group: Mapping[Group, Mapping[str, BySeed]], group: Group
) -> tuple[Negatives | None, dict[str, BySeed]]:
    """Returns the nearest existing dense column before a group's column, and its values of each row."""
    split, negatives, size, kind = group
    for earlier in reversed(DENSE[: DENSE.index(negatives)]):
        untuned = earlier == UNTUNED
        rows = dict(by_group.get((split, earlier, None if untuned else size, kind), {}))
        if untuned:  # it has one seed, used for all
            rows = {row: dict.fromkeys(by_group[group].get(row, {}), *one.values()) for row, one in rows.items()}
        if rows:
            return earlier, rows
    return None, {}


def _first_stage(data: AblationData, group: Group, by_row: Mapping[str, BySeed]) -> dict[str, BySeed]:
    """Returns the first stage's values for each seed of each row; empty if it is not the same in all cells."""
    split, _, _, kind = group
    if split not in data.first_stage:
        return {}
    first_QM = data.first_stage[split].measured[kind].values_QM
    return {row: dict.fromkeys(by_seed, first_QM) for row, by_seed in by_row.items()}


def _mean(by_seed: BySeed, seeds: Sequence[int]) -> np.ndarray:
    return np.mean([by_seed[seed] for seed in seeds], axis=0)
