"""A ranking of candidates for negatives, and what is taken of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.data.ids import hash_id


class Sampling(Protocol):
    """The fields of a stage's configuration that say what it takes of the pools; described in `MineConfig`."""

    @property
    def number(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def page_questions(self) -> int: ...


@dataclass(frozen=True)
class Ranking:
    """The candidates of one question, best first, judged passages among them."""

    query_id: str
    passage_ids: list[str]
    scores: np.ndarray
    """float32; NaN where a file gives none."""


@dataclass(frozen=True)
class Taken:
    """What became of one question."""

    ranking: Ranking
    places: np.ndarray
    """Places in the ranking of its negatives, ascending."""


def sample(places: np.ndarray, number: int, seed: int, query_id: str) -> np.ndarray:
    """At most `number` of `places` (0: all), ascending; a function of (seed, question) and the pool alone."""
    return np.sort(np.random.default_rng([seed, hash_id(query_id)]).permutation(places)[: number or None])


def best_place(ranking: Ranking, judged: Iterable[str]) -> int | None:
    """Place of the first positive; None: not among the candidates."""
    positives = set(judged)
    return next((i for i, passage in enumerate(ranking.passage_ids) if passage in positives), None)
