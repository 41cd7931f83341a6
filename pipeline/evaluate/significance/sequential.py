"""When questions that are judged one after another prove a difference, and how many more they may need.

Who tests again after each question and stops at the first p < .05 finds a difference between equal systems far more
often than in 5 % of the cases. So the number of questions is planned, the data are looked at LOOKS times at equal
distances, and each look has its own, lower level: the boundaries of O'Brien and Fleming (1979, A multiple testing
procedure for clinical trials), which keep the error of all looks together at SURE. They are strict at first and spend
little on early looks: the last look's level is .041, and the plan needs only 2.8 % more questions than a single test at
its end. An interval that holds after every question (an anytime-valid one) needs no plan, but about twice the
questions, and each of them takes a person's time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from pipeline.evaluate.significance.paired import SURE, Test, holm, p_values, rounded_p

LOOKS = 5
BOUNDARY = 2.040
"""Of z at the last look, for LOOKS = 5 and a two-sided error of .05 (Jennison and Turnbull, 2000, Group sequential
methods, table 2.3); at look k it is this times sqrt(LOOKS / k)."""
INFLATION = 1.028
"""Questions that the plan needs, as a multiple of those of a single test (ibid., table 2.4: power 80 %)."""
POWER = 0.8
NORMAL = NormalDist()


@dataclass(frozen=True)
class Compared:
    """A system compared with the best one."""

    other: str
    p_holm: float
    """Corrected for the number of all pairs of systems."""
    needed: int | None
    """Estimate of all questions that prove the difference, with a power of 80 %; None: they do not differ so far."""


@dataclass(frozen=True)
class Look:
    """The state after the first `questions` questions."""

    questions: int
    level: float
    """p below which a difference is significant at this look."""
    best: str
    others: list[Compared]
    """From the second best to the last."""

    @property
    def is_decided(self) -> bool:
        """Whether the best system differs significantly from each other one."""
        return all(one.p_holm < self.level for one in self.others)

    @property
    def needed(self) -> int | None:
        """Estimate of all questions that prove the best system better than each other one."""
        known = [one.needed for one in self.others if one.needed is not None]
        return max(known) if len(known) == len(self.others) else None


def look_counts(planned: int) -> list[int]:
    """Returns the numbers of questions after which the data are looked at; the last is `planned`."""
    return [math.ceil(planned * k / LOOKS) for k in range(1, LOOKS + 1)]


def levels() -> list[float]:
    """Returns the level of each look, [LOOKS]: about .000005, .0013, .0084, .023, .041."""
    return [2 * NORMAL.cdf(-BOUNDARY * math.sqrt(LOOKS / k)) for k in range(1, LOOKS + 1)]


def looks(
    values: Mapping[str, np.ndarray], planned: int, test: Test = "randomisation", samples: int = 10_000, seed: int = 42
) -> list[Look]:
    """Returns the looks until now, up to the first that decides.

    `values`: {system: one figure per question, in the order in which they were judged, [Q]}, at least two systems.
    `test`, `samples` and `seed`: see `p_values`.
    """
    done: list[Look] = []
    judged = len(next(iter(values.values())))
    for count, level in zip(look_counts(planned), levels(), strict=True):
        if count > judged or (done and done[-1].is_decided):
            break
        done.append(_look({name: value_Q[:count] for name, value_Q in values.items()}, level, test, samples, seed))
    return done


def _look(values: Mapping[str, np.ndarray], level: float, test: Test, samples: int, seed: int) -> Look:
    by_mean = sorted(values, key=lambda name: -float(values[name].mean()))
    pairs = [*combinations(by_mean, 2)]
    difference_QP = np.stack([values[a] - values[b] for a, b in pairs], axis=1)
    p_P = holm(p_values(difference_QP, test, samples, seed)[:, None])[:, 0]
    others = [
        Compared(b, rounded_p(p_P[n]), needed_questions(difference_QP[:, n], len(pairs)))
        for n, (a, b) in enumerate(pairs)
        if a == by_mean[0]
    ]
    return Look(len(difference_QP), level, by_mean[0], others)


def needed_questions(difference_Q: Sequence[float] | np.ndarray, pairs: int = 1) -> int | None:
    """Returns how many questions prove a mean difference as large as that of these questions, with a power of 80 %.

    The normal approximation, with mean and standard deviation of the given differences. `pairs`: number of pairs for
    which p is corrected. None if the mean is 0.
    """
    mean, deviation = float(np.mean(difference_Q)), float(np.std(difference_Q, ddof=1))
    if abs(mean) < 1e-9:
        return None
    quantiles = NORMAL.inv_cdf(1 - SURE / (2 * pairs)) + NORMAL.inv_cdf(POWER)
    return math.ceil(INFLATION * (quantiles * deviation / mean) ** 2)
