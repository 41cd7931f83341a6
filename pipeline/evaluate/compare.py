"""Compares two evaluations of the same questions, system by system.

Legend of suffixes: Q questions, S pairs of systems.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.evaluate.measures import measure_name
from pipeline.evaluate.significance.bootstrap import interval, resampled_means, rounded
from pipeline.evaluate.significance.paired import SAMES, Test, holm, outcomes, p_values, rounded_p

Figures = Mapping[str, Mapping[str, float]]
"""{system: {question: figure}} of one measure."""
Pair = tuple[str, str]
"""A system of evaluation a and one of b."""


@dataclass(frozen=True)
class ComparedPair:
    """A system of a compared with one of b."""

    a: float
    b: float
    mean: float
    """b - a."""
    low: float
    high: float
    """Ends of the 95 % interval."""
    p: float
    p_holm: float
    """Corrected over the rows by Holm's method."""
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


def read_figures(folder: Path, split: str, measure: str) -> Figures:
    """Reads an artifact of stage `evaluate`, systems in its table's order. Questions without a figure (without a
    relevant passage; for hits, without answers) are left out.

    Raises InputError for an unknown measure, and for a missing or damaged table.
    """
    measure = known_measure(measure)
    columns = ["query_id", "system", measure]
    rows = read_table(folder / "per_query.parquet", columns=columns, filters=[("split", "=", split)])
    figures: dict[str, dict[str, float]] = {}
    for query_id, system, value in zip(*(rows[name].to_pylist() for name in columns), strict=True):
        if value is not None:
            figures.setdefault(system, {})[query_id] = value
    return figures


def known_measure(measure: str) -> str:
    """Returns the measure's name in the tables. Raises InputError for an unknown measure."""
    try:
        return measure_name(measure)
    except ValueError as error:
        raise InputError(f"--measure {measure}: {error}") from None


def cutoff(measure: str) -> int | None:
    """Returns the last rank at which a measure looks; None: all ranks."""
    found = re.search(r"@(\d+)$", measure)
    return int(found[1]) if found else None


def questions_of(figures: Figures) -> set[str]:
    return {query_id for by_question in figures.values() for query_id in by_question}


def compare_systems(
    a: Figures, b: Figures, query_ids: Sequence[str], pairs: Sequence[Pair], test: Test, samples: int, seed: int
) -> list[ComparedPair]:
    """Returns a row for each pair, over the questions `query_ids`, which both have. `samples` and `seed`: of the
    bootstrap and of the randomisation test."""
    a_QS = figures_of(a, query_ids, [name for name, _ in pairs])
    b_QS = figures_of(b, query_ids, [name for _, name in pairs])
    difference_QS = b_QS - a_QS
    low_S, high_S = interval(resampled_means(difference_QS, samples, seed))
    p_S = p_values(difference_QS, test, samples, seed)
    holm_S = holm(p_S[:, None])[:, 0]
    wins_S, ties_S, losses_S = outcomes(difference_QS)
    return [
        ComparedPair(
            a=rounded(a_QS[:, s].mean()),
            b=rounded(b_QS[:, s].mean()),
            mean=rounded(difference_QS[:, s].mean()),
            low=rounded(low_S[s]),
            high=rounded(high_S[s]),
            p=rounded_p(p_S[s]),
            p_holm=rounded_p(holm_S[s]),
            wins=wins_S[s],
            ties=ties_S[s],
            losses=losses_S[s],
        )
        for s in range(len(pairs))
    ]


def figures_of(figures: Figures, query_ids: Sequence[str], systems: Sequence[str]) -> np.ndarray:
    """Returns figures, float64 [questions, systems]."""
    return np.array([[figures[name][query_id] for name in systems] for query_id in query_ids])


def changes(a: Figures, b: Figures, query_ids: Sequence[str], pair: Pair, number: int) -> list[Change]:
    """Returns the questions with the largest changes, gains or losses; of equal changes the first."""
    every = [Change(q, rounded(a[pair[0]][q]), rounded(b[pair[1]][q])) for q in query_ids]
    changed = [change for change in every if abs(change.b - change.a) > SAMES]
    return sorted(changed, key=lambda change: -abs(change.b - change.a))[:number]
