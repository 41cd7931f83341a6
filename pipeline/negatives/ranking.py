"""Rankings of candidates for negatives, and samples from them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.data.ids import hash_id


class SamplingConfig(Config):
    """How negatives are sampled from the passages of each question's ranking."""

    number: int | None = Field(ge=1)
    """Negatives sampled for each question. null: all. 30 in the authors' code."""
    seed: Seed
    """Seed of the sampling, and of the questions on the page."""
    page_questions: int = Field(ge=0)
    """Number of random questions on `negatives.html`, a page for the user. 0: no page."""


@dataclass(frozen=True)
class Ranking:
    """The candidates of one question, best first, including judged passages."""

    query_id: str
    passage_ids: list[str]
    scores: np.ndarray
    """float32; NaN: no score in the file."""


@dataclass(frozen=True)
class QuestionNegatives:
    """The negatives of one question."""

    ranking: Ranking
    places: np.ndarray
    """Places of its negatives in the ranking, ascending."""


def sample_places(places: np.ndarray, number: int | None, seed: int, query_id: str) -> np.ndarray:
    """Returns at most `number` of `places` (None: all), ascending. Depends only on seed, question and pool."""
    return np.sort(np.random.default_rng([seed, hash_id(query_id)]).permutation(places)[:number])


def best_place(ranking: Ranking, judged: Iterable[str]) -> int | None:
    """Returns the place of the first positive; None if there is none among the candidates."""
    positives = set(judged)
    return next((i for i, passage in enumerate(ranking.passage_ids) if passage in positives), None)
