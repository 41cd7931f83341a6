"""The pairs that soft labels score: each training question with its judged passages and its possible negatives.

Shapes: N pairs, question by question; Q questions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.finetune.training_pools import check_questions, first_negatives
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics

if TYPE_CHECKING:
    from pipeline.data.barred import Dropped


class SoftLabelsConfig(Config):
    negatives_from: Literal["bm25", "collection"]
    """First negatives, as in the fine-tuning that reads the scores."""
    negative_depth: int | None = Field(ge=1)
    """First negatives of each question that are scored, best first. null: all. At least fine-tuning's."""


def check_collection(node: Planned) -> Iterator[InputError]:
    """Questions, and negatives as the fine-tuning that reads the scores has them; an early check of both stages."""
    return check_questions(node, "stage2")


@dataclass(frozen=True)
class SoftLabelPairs:
    """A question's passages are its judged ones, then its first negatives, then all mined ones, without duplicates."""

    query_N: np.ndarray
    """Rows of queries.parquet, ascending. int64."""
    passage_N: np.ndarray
    """Rows of passages.parquet. int32."""
    judged_N: np.ndarray
    """Which passages are judged. bool."""
    start_Q: np.ndarray
    """Place of each question's first pair. int64."""

    def metrics(self, score_N: np.ndarray) -> Metrics:
        """Returns the numbers of questions and pairs, and how often a judged passage has the highest score."""
        best_Q = np.maximum.reduceat(score_N, self.start_Q)
        best_judged_Q = np.maximum.reduceat(np.where(self.judged_N, score_N, -np.inf), self.start_Q)
        return {
            "questions": len(self.start_Q),
            "pairs": len(self.query_N),
            "judged_first": float((best_Q == best_judged_Q).mean()),
        }


def read_pairs(
    config: SoftLabelsConfig, collection: Path, bm25: Path, mined: Path | None, dropped: "Dropped"
) -> SoftLabelPairs:
    """Reads the pairs. `dropped` counts the listed negatives that are barred (pipeline/data/barred.py).

    Raises InputError if no training question has a judged passage.
    """
    from pipeline.finetune.pools import join_lists, read_pools

    first = first_negatives(config.negatives_from, collection, bm25)
    pools = read_pools(collection, first, config.negative_depth, bm25=bm25, mined=mined, dropped=dropped)
    own = join_lists(pools.judged, *pools.negatives)
    place_N = np.arange(len(own.flat)) - own.offsets[:-1].repeat(own.lengths)
    judged_N = place_N < pools.judged.lengths.repeat(own.lengths)
    return SoftLabelPairs(pools.queries.repeat(own.lengths), own.flat, judged_N, own.offsets[:-1])
