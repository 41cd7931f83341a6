"""Validation of a bi-encoder between epochs: reranking a few candidates of dev questions (the ABS paper).

Shapes: V questions, C candidates of each, E dimensions.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline.config import Config

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.data.judged import Judged

CUTOFF = 10


class ValidationConfig(Config):
    questions: int = Field(ge=0)
    """Dev questions after each epoch, the first of a seeded shuffle. 0: no validation. 1,500 in the ABS paper."""
    candidates: int = Field(ge=2)
    """Passages of each question: a judged one and others of the first stage's list. 100 in the ABS paper."""
    keep: Literal["last", "best"]
    """The epoch whose weights are kept: the last (coCondenser), or that of the best MRR@10 (the ABS paper)."""

    @model_validator(mode="after")
    def _best_of_what(self) -> Self:
        if self.keep == "best" and not self.questions:
            raise ValueError("keep: best needs questions above 0")
        return self


class Candidates(NamedTuple):
    """The questions and passages that validation reranks."""

    queries_V: np.ndarray
    """Rows of queries.parquet."""
    passages_VC: np.ndarray
    """Rows of passages.parquet, the judged one first."""


def draw_questions(config: ValidationConfig, judged: "Judged", rng: np.random.Generator) -> "Judged":
    """Draws the dev questions for validation. Raises InputError if one has too few unjudged passages."""
    from pipeline.data.judged import take
    from pipeline.finetune.examples import check_enough

    known = take(judged, np.sort(rng.permutation(len(judged.queries))[: config.questions]))
    check_enough("validation.candidates", config.candidates - 1, known.barred_n, len(known.passage_ids), positives=1)
    return known


def read_candidates(config: ValidationConfig, collection: Path, run: Path, seed: int) -> Candidates:
    """Returns dev questions with one positive each, and a seeded sample of those in `run` that are not barred.

    If a list is too short, it adds passages of the full collection. Raises InputError if there are no dev questions, or
    if one has too few passages that are not barred.
    """
    from pipeline.data.barred import numbers_barred, read_barred
    from pipeline.data.judged import read_judged
    from pipeline.finetune.examples import check_enough, fill
    from pipeline.finetune.pools import read_lists
    from pipeline.finetune.positives import best_positives

    rng = np.random.default_rng(seed)
    known = draw_questions(config, read_judged(collection, "dev"), rng)
    barred = read_barred(collection, known)
    listed, barred_n = read_lists(run / "run.parquet", known, barred), numbers_barred(barred)
    check_enough("validation.candidates", config.candidates - 1, barred_n, len(known.passage_ids), positives=1)
    positives = best_positives(known, collection, run)
    rows = []
    for i in range(len(known.queries)):
        sampled = rng.permutation(listed[i])[: config.candidates - 1]
        others = fill(sampled, barred, i, config.candidates - 1, len(known.passage_ids), rng)
        rows.append(np.append(positives[i][0], others))
    return Candidates(known.queries, np.stack(rows))


def reciprocal_ranks(scores_VC: "Tensor") -> "Tensor":
    """Returns 1 / rank of the first candidate, 0 beyond CUTOFF, float [V]; among equal scores it ranks last."""
    rank_V = (scores_VC >= scores_VC[:, :1]).sum(1)
    return (rank_V <= CUTOFF) / rank_V
