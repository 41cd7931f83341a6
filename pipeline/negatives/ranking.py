"""Rankings of candidates for negatives, and samples from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.data.ids import hash_id


class Sampling(Protocol):
    """Configuration fields for sampling from the pools; described in `MineConfig`."""

    @property
    def number(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def page_questions(self) -> int: ...


@dataclass(frozen=True)
class Ranking:
    """The candidates of one question, best first, including judged passages."""

    query_id: str
    passage_ids: list[str]
    scores: np.ndarray
    """float32; NaN: no score in the file."""


@dataclass(frozen=True)
class Taken:
    """The negatives of one question."""

    ranking: Ranking
    places: np.ndarray
    """Places of its negatives in the ranking, ascending."""


def sample(places: np.ndarray, number: int, seed: int, query_id: str) -> np.ndarray:
    """Returns at most `number` of `places` (0: all), ascending. Depends only on seed, question and pool."""
    return np.sort(np.random.default_rng([seed, hash_id(query_id)]).permutation(places)[: number or None])


def best_place(ranking: Ranking, judged: Iterable[str]) -> int | None:
    """Returns the place of the first positive; None if there is none among the candidates."""
    positives = set(judged)
    return next((i for i, passage in enumerate(ranking.passage_ids) if passage in positives), None)
