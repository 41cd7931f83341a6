"""Two evaluations of the same questions, system by system.

Legend of suffixes: Q questions, S systems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.bootstrap import interval, resampled_means
from pipeline.errors import InputError
from pipeline.measures import MEASURES
from pipeline.significance import SAMES, Test, holm, outcomes, p_values
from pipeline.stored import read_table

DIGITS = 6


@dataclass(frozen=True)
class Row:
    """A system, or the pair of those that were best, by one measure."""

    a: float
    b: float
    mean: float
    """b - a."""
    low: float
    high: float
    p: float
    p_holm: float
    """By Holm over the table's rows."""
    wins: int
    """Questions for which b is better."""
    ties: int
    losses: int


@dataclass(frozen=True)
class Change:
    """A question whose figure changed."""

    query_id: str
    a: float
    b: float


@dataclass(frozen=True)
class Compared:
    questions: int
    questions_of_a_alone: int
    questions_of_b_alone: int
    rows: dict[tuple[str, str], Row]
    """By the system of a and of b."""
    changes: list[Change]
    """Of the last row, greatest first, gains and losses alike."""


def compare(
    a: Path,
    b: Path,
    split: str,
    pairs: Sequence[tuple[str, str]],
    measure: str,
    changes: int,
    test: Test,
    samples: int,
    seed: int,
) -> Compared:
    """Figures of `measure` of the questions that stand in both folders of stage `evaluate`, b minus a.

    `pairs`: systems of a and of b, which need not have the same names. Raises InputError for a system that a folder
    does not have, and where no question stands in both.
    """
    if measure not in MEASURES:
        raise InputError(f"--measure {measure}: there are {', '.join(MEASURES)}")
    of_a, of_b = (read_figures(folder, split, measure) for folder in (a, b))
    for folder, found, names in ((a, of_a, [x for x, _ in pairs]), (b, of_b, [y for _, y in pairs])):
        for name in names:
            if name not in found:
                raise InputError(f"{folder}: no system {name!r} in {split}; there are {', '.join(found) or 'none'}")
    asked_a, asked_b = ({q for figures in found.values() for q in figures} for found in (of_a, of_b))
    shared = sorted(asked_a & asked_b)
    if not shared:
        raise InputError(f"{a} and {b}: no question of {split} stands in both")
    a_QS, b_QS = (
        np.array([[found[name][query_id] for name in names] for query_id in shared])
        for found, names in ((of_a, [x for x, _ in pairs]), (of_b, [y for _, y in pairs]))
    )
    difference_QS = b_QS - a_QS
    low_S, high_S = interval(resampled_means(difference_QS, samples, seed))
    p_S = p_values(difference_QS, test, samples, seed)
    holm_S = holm(p_S[:, None])[:, 0]
    wins_S, ties_S, losses_S = outcomes(difference_QS)
    rows = {
        pair: Row(
            a=rounded(a_QS[:, s].mean()),
            b=rounded(b_QS[:, s].mean()),
            mean=rounded(difference_QS[:, s].mean()),
            low=rounded(low_S[s]),
            high=rounded(high_S[s]),
            p=rounded(p_S[s]),
            p_holm=rounded(holm_S[s]),
            wins=wins_S[s],
            ties=ties_S[s],
            losses=losses_S[s],
        )
        for s, pair in enumerate(pairs)
    }
    greatest = np.argsort(-np.abs(difference_QS[:, -1]), kind="stable")[:changes]
    changed = [
        Change(shared[q], rounded(a_QS[q, -1]), rounded(b_QS[q, -1]))
        for q in greatest.tolist()
        if abs(difference_QS[q, -1]) > SAMES
    ]
    return Compared(len(shared), len(asked_a - asked_b), len(asked_b - asked_a), rows, changed)


def rounded(figure: float) -> float:
    """Without the last bits, which hang on the processor's order of sums, and without -0."""
    return round(float(figure), DIGITS) + 0.0


def read_figures(folder: Path, split: str, measure: str) -> dict[str, Mapping[str, float]]:
    """{system: {question: figure}} of an artifact of stage `evaluate`, systems in its table's order."""
    columns = ["query_id", "system", measure]
    rows = read_table(folder / "per_query.parquet", columns=columns, filters=[("split", "=", split)])
    found: dict[str, dict[str, float]] = {}
    for query_id, system, value in zip(*(rows[name].to_pylist() for name in columns), strict=True):
        found.setdefault(system, {})[query_id] = value
    return {**found}
