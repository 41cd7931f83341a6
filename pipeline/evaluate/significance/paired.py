"""Significance tests of differences between systems, paired by question and corrected for the number of pairs.

Legend of suffixes: Q questions, M measures, P pairs of systems, C columns (pairs times measures), S draws of signs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pipeline.evaluate.significance.bootstrap import DIGITS, summary

Test = Literal["randomisation", "t"]
SAMES = 1e-9
"""Smaller differences of a question's figures count as zero, and of sums as equal: last bits of sums may differ."""
SURE = 0.05
"""Corrected p below which a difference is significant, in every table."""
FEWEST = 50
"""Questions below which nothing is chosen by them: their few differences mislead, and p is rough."""
CELLS = 4_000_000
"""Numbers of one block of random signs: 32 MB."""


def p_values(difference_QM: np.ndarray, test: Test, samples: int, seed: int) -> np.ndarray:
    """Returns two-sided p of each column's mean difference, [Q, M] -> [M]; 1 if no question differs.

    `randomisation`: draws the signs of all questions' differences `samples` times (Fisher's test; Smucker, Allan and
    Carterette, 2007), from `seed`; uses all combinations of signs instead if there are no more than that. `t`:
    Student's, which draws nothing; it is undefined if all questions differ equally (no variance above SAMES), and
    such a column gets the p of `randomisation`.
    """
    p_M = np.ones(difference_QM.shape[1])
    differs_M = np.abs(difference_QM).max(axis=0, initial=0) > SAMES
    if len(difference_QM) < 2 or not differs_M.any():
        return p_M
    spreads_M = np.ptp(difference_QM, axis=0) > SAMES
    by_t_M = differs_M & spreads_M & (test == "t")
    by_signs_M = differs_M & ~by_t_M
    if by_t_M.any():
        p_M[by_t_M] = _students(difference_QM[:, by_t_M])
    if by_signs_M.any():
        p_M[by_signs_M] = _randomised(difference_QM[:, by_signs_M], samples, seed)
    return p_M


def _students(difference_QM: np.ndarray) -> np.ndarray:
    from scipy import stats

    return np.asarray(stats.ttest_1samp(difference_QM, 0.0, axis=0).pvalue)


def _randomised(difference_QM: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Returns the share of signs with a sum at least as far from 0 as the observed one; drawn signs include that one.

    All columns share the signs, so that a block of them is one matrix product: scipy.stats.permutation_test, which
    draws them for each column, takes a hundred times longer.
    """
    difference_QM = difference_QM[(np.abs(difference_QM) > SAMES).any(axis=1)]
    questions = len(difference_QM)
    least_M = np.abs(difference_QM.sum(axis=0)) - SAMES
    every = 2**questions <= samples
    total = 2**questions if every else samples
    random = np.random.default_rng(seed)
    block = max(1, CELLS // questions)
    as_far_M = np.zeros(len(least_M), np.int64)
    for first in range(0, total, block):
        number = min(block, total - first)
        if every:
            bits_SQ = ((np.arange(first, first + number)[:, None] >> np.arange(questions)) & 1).astype(np.uint8)
        else:
            packed = np.frombuffer(random.bytes(number * -(-questions // 8)), np.uint8)
            bits_SQ = np.unpackbits(packed.reshape(number, -1), axis=1, count=questions)
        as_far_M += (np.abs((2.0 * bits_SQ - 1) @ difference_QM) >= least_M).sum(axis=0)
    return as_far_M / total if every else (as_far_M + 1) / (total + 1)


def holm(p_PM: np.ndarray) -> np.ndarray:
    """Returns p values corrected for the number of pairs, each measure by itself (Holm, 1979). [P, M] -> [P, M]."""
    pairs = len(p_PM)
    by_PM = np.argsort(p_PM, axis=0, kind="stable")
    factor_P1 = np.arange(pairs, 0, -1)[:, None]
    raised_PM = np.maximum.accumulate(np.take_along_axis(p_PM, by_PM, axis=0) * factor_P1, axis=0)
    corrected_PM = np.empty_like(p_PM)
    np.put_along_axis(corrected_PM, by_PM, np.minimum(raised_PM, 1.0), axis=0)
    return corrected_PM


class Better(NamedTuple):
    """A candidate that is better than the default."""

    column: int
    p: float
    """Corrected by Holm's method for the number of candidates."""


def proven_better(difference_QC: np.ndarray, test: Test, samples: int, seed: int) -> Better | None:
    """Returns the best of the candidates that questions prove better than a default, None if they prove none: fewer
    than FEWEST questions, or no mean above 0 with corrected p < SURE. Of equal means the first.

    `difference_QC`: each candidate's figures less the default's. `test`, `samples` and `seed`: see `p_values`.
    """
    if len(difference_QC) < FEWEST:
        return None
    p_C = holm(p_values(difference_QC, test, samples, seed)[:, None])[:, 0]
    mean_C = np.where(p_C < SURE, difference_QC.mean(axis=0), 0.0)
    best = int(mean_C.argmax())
    return Better(best, float(p_C[best])) if mean_C[best] > 0 else None


def rounded_p(p: float) -> float:
    """Returns p without its last bits, rounded to significant digits, so that a small p does not become 0."""
    return float(f"{p:.{DIGITS}g}")


def is_significant(figure: Mapping[str, Any]) -> bool:
    """Whether a difference is significant by its p_holm; False without a test."""
    return bool(figure.get("p_holm", 1.0) < SURE)


def outcomes(difference_QM: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Returns the numbers of better, equal and worse questions, each [columns]."""
    wins_M, losses_M = (difference_QM > SAMES).sum(0), (difference_QM < -SAMES).sum(0)
    return wins_M.tolist(), (len(difference_QM) - wins_M - losses_M).tolist(), losses_M.tolist()


def comparisons(
    values: Mapping[str, np.ndarray],
    measures: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    test: Test,
    samples: int,
    seed: int,
) -> dict[str, dict[str, dict[str, float]]]:
    """Returns {`a - b`: {measure: {p, p_holm, wins, ties, losses}}} of the pairs, from {system: [Q, M]}.

    `wins`: questions for which a is better than b. `test`, `samples` and `seed`: see `p_values`.
    """
    if not pairs:
        return {}
    difference_QC = np.concatenate([values[a] - values[b] for a, b in pairs], axis=1)
    p_PM = p_values(difference_QC, test, samples, seed).reshape(len(pairs), len(measures))
    corrected_PM = holm(p_PM)
    counts = iter(zip(*outcomes(difference_QC), strict=True))  # pair by pair, measure by measure
    results: dict[str, dict[str, dict[str, float]]] = {}
    for n, (a, b) in enumerate(pairs):
        results[f"{a} - {b}"] = {}
        for m, measure in enumerate(measures):
            wins, ties, losses = next(counts)
            p, p_holm = rounded_p(p_PM[n, m]), rounded_p(corrected_PM[n, m])
            results[f"{a} - {b}"][measure] = {"p": p, "p_holm": p_holm, "wins": wins, "ties": ties, "losses": losses}
    return results


def tabulated(
    values: Mapping[str, np.ndarray],
    measures: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    test: Test,
    *,
    permutations: int,
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """Returns {systems: {system: {measure: {mean, low, high}}}, differences: the same of each pair, with the results of
    `comparisons`}, from {system: [Q, M]}. `samples`: of the bootstrap."""
    table = summary(values, measures, pairs, samples, seed)
    tests = comparisons(values, measures, pairs, test, permutations, seed)
    for pair, figures in table["differences"].items():
        for measure in measures:
            figures[measure] |= tests[pair][measure]
    return table
