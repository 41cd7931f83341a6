"""Whether two systems differ by more than chance: tests paired by question, corrected for their number.

Legend of suffixes: Q questions, M measures, P pairs of systems.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from pipeline.bootstrap import rounded
from pipeline.measures import MEASURES

Test = Literal["randomisation", "t"]
SAMES = 1e-9
"""Differences of a question's figures below this are none: sums may end in other last bits."""
CELLS = 8_000_000
"""Numbers of one block of random signs: 64 MB."""


def p_values(difference_QM: np.ndarray, test: Test, samples: int, seed: int) -> np.ndarray:
    """Two-sided p of each measure's mean difference, [Q, M] -> [M]; 1 where no question differs.

    `randomisation`: the sign of each question's difference is drawn anew, `samples` times (Fisher's test; Smucker,
    Allan and Carterette, 2007), from `seed`; all signs are taken instead where there are no more than that. `t`:
    Student's, which draws nothing.
    """
    from scipy import stats

    p_M = np.ones(difference_QM.shape[1])
    differs_M = np.abs(difference_QM).max(axis=0) > SAMES
    differing = difference_QM[:, differs_M]
    if len(difference_QM) < 2 or not differs_M.any():
        return p_M
    if test == "t":
        with np.errstate(divide="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # all questions differ alike: p is 0
            p_M[differs_M] = stats.ttest_1samp(differing, 0.0, axis=0).pvalue
        return p_M
    p_M[differs_M] = stats.permutation_test(
        (differing,),
        lambda x, axis: np.abs(x.mean(axis)),
        alternative="greater",
        permutation_type="samples",
        vectorized=True,
        n_resamples=samples,
        batch=max(1, CELLS // differing.size),
        axis=0,
        rng=np.random.default_rng(seed),
    ).pvalue
    return p_M


def holm(p_PM: np.ndarray) -> np.ndarray:
    """p values corrected for the number of pairs, each measure by itself (Holm, 1979). [P, M] -> [P, M]."""
    pairs = len(p_PM)
    by_PM = np.argsort(p_PM, axis=0, kind="stable")
    factor_P1 = np.arange(pairs, 0, -1)[:, None]
    raised_PM = np.maximum.accumulate(np.take_along_axis(p_PM, by_PM, axis=0) * factor_P1, axis=0)
    corrected_PM = np.empty_like(p_PM)
    np.put_along_axis(corrected_PM, by_PM, np.minimum(raised_PM, 1.0), axis=0)
    return corrected_PM


def outcomes(difference_QM: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Questions that are better, alike and worse, one number for each column."""
    wins_M, losses_M = (difference_QM > SAMES).sum(0), (difference_QM < -SAMES).sum(0)
    return wins_M.tolist(), (len(difference_QM) - wins_M - losses_M).tolist(), losses_M.tolist()


def comparisons(
    values: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]], test: Test, samples: int, seed: int
) -> dict[str, dict[str, dict[str, float]]]:
    """{`a - b`: {measure: {p, p_holm, wins, ties, losses}}} of the pairs, from {system: [Q, M]}.

    `wins`: questions for which a is better than b. `test`, `samples` and `seed` as `p_values` has them.
    """
    if not pairs:
        return {}
    differences = [values[a] - values[b] for a, b in pairs]
    p_PM = np.stack([p_values(difference, test, samples, seed) for difference in differences])
    corrected_PM = holm(p_PM)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for n, ((a, b), difference_QM) in enumerate(zip(pairs, differences, strict=True)):
        wins_M, ties_M, losses_M = outcomes(difference_QM)
        found[f"{a} - {b}"] = {
            name: {
                "p": rounded(p_PM[n, m]),
                "p_holm": rounded(corrected_PM[n, m]),
                "wins": wins_M[m],
                "ties": ties_M[m],
                "losses": losses_M[m],
            }
            for m, name in enumerate(MEASURES)
        }
    return found
