"""Pseudo-labels: a cross-encoder labels retrieved passages as relevant or not (RocketQA, section 4.2.3)."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.cross_encoder.lengths import check_cross_encoder, count_cut
from pipeline.cross_encoder.score_pairs import mean_score, relevance
from pipeline.cross_encoder.teacher_quality import teacher_quality
from pipeline.data.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.notices import EXAMPLES, noticed, of_counts, read_notices
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from pipeline.data.judged import Judged

NOTICES = {
    "questions_without_positives": ("questions without a pseudo-label", "pseudo_labels.positive_above"),
    "questions_without_negatives": ("questions with a pseudo-label, but no negative", "pseudo_labels.negative_below"),
}
"""{count: (what is counted, advice)}."""


class PseudoLabelsConfig(Config):
    depth: int = Field(ge=1)
    """Best passages of the run that are scored for each question."""
    positive_above: float = Field(ge=0, le=1)
    """Passages with a higher score (sigmoid of the logit) are positives. 0.9 (RocketQA). As in denoise, the
    cross-encoder must be trained pointwise."""
    negative_below: float = Field(ge=0, le=1)
    """Passages with a lower score are negatives. 0.1 (RocketQA)."""
    positives: int | None = Field(ge=1)
    """Most positives kept per question, best scores first. null: all."""
    negatives: int | None = Field(ge=1)
    """Most negatives kept per question, best ranks first. null: all."""

    @model_validator(mode="after")
    def _apart(self) -> "PseudoLabelsConfig":
        if self.negative_below > self.positive_above:
            raise ValueError(f"negative_below ({self.negative_below}) exceeds positive_above ({self.positive_above})")
        return self


def pseudo_labels(
    config: PseudoLabelsConfig, collection: Path, tokens: Path, run: Path, work: Work, **cross_encoders: Path
) -> Metrics:
    """Writes `qrels.parquet` (split train, relevance 1) and `negatives.parquet` (source `pseudo`, rank and score of
    the run) of the training questions without a judged passage.

    `cross_encoders`: one, or one for each fold: none was trained on these questions, so the mean of all logits counts.
    A passage equal to the question is not a candidate; copies of a positive are not negatives (data/barred.py).
    Questions without a positive are left out and counted; those without a negative are kept and counted.
    Raises InputError if the run has no such question, or if none of them gets a positive.
    """
    import pyarrow as pa

    from pipeline.data import barred, runs
    from pipeline.data.judged import judged_as
    from pipeline.tokenization.token_files import Tokens

    lengths, *_ = [check_cross_encoder(folder, tokens) for folder in cross_encoders.values()]  # folds have the same
    scored = partial(mean_score, cross_encoders, tokens, work=work)
    known = unjudged(collection)
    places, query_ids = known.queries, known.query_ids.to_pylist()
    ids = np.array(known.passage_ids.to_pylist(), dtype=object)
    found = runs.read_run(run, "train", pa.array(query_ids, pa.string()), pa.array(ids)) if query_ids else None
    if found is None or not len(found.question_R):
        raise InputError(f"{run / 'run.parquet'}: no training question without a judged passage")
    dropped = barred.Dropped()
    near_R = found.rank_R <= config.depth
    question_N, passage_N, rank_N = found.question_R[near_R], found.passage_R[near_R], found.rank_R[near_R]
    itself_N = barred.reasons(barred.read_barred(collection, known), question_N, passage_N)
    dropped.count_pairs(itself_N, question_N, passage_N, known)
    other_N = itself_N == barred.FREE
    question_N, passage_N, rank_N = question_N[other_N], passage_N[other_N], rank_N[other_N]
    score_N = found.score_R[near_R][other_N]
    logit_N = scored(places[question_N], passage_N)
    positive_N = positives(config, question_N, logit_N)
    if not len(positive_N):
        raise InputError(f"pseudo_labels.positive_above: no passage scores above {config.positive_above}")
    low_N = low(config, question_N, logit_N, positive_N)
    labelled = judged_as(known, question_N[positive_N], passage_N[positive_N])
    copied_N = barred.reasons(barred.read_barred(collection, labelled), question_N[low_N], passage_N[low_N])
    dropped.count_pairs(copied_N, question_N[low_N], passage_N[low_N], known)
    negative_N = _first(low_N[copied_N == barred.FREE], question_N, config.negatives)
    query_N, id_N = np.array(query_ids, dtype=object)[question_N], ids[passage_N]
    qrels = (("train", query_N[i], id_N[i], 1) for i in positive_N)
    negatives = ((query_N[i], id_N[i], "pseudo", int(rank_N[i]), float(score_N[i])) for i in negative_N)
    write_table(work.out / "qrels.parquet", schemas()["qrels"], qrels)
    write_table(work.out / "negatives.parquet", runs.NEGATIVES, negatives)
    quality = teacher_quality(partial(scored, suffix="-dev"), collection, run)
    kept = np.unique(question_N[positive_N])
    without = {
        "questions_without_positives": np.setdiff1d(question_N, kept),
        "questions_without_negatives": np.setdiff1d(kept, question_N[negative_N]),
    }
    counts = {name: len(numbers) for name, numbers in without.items()}
    examples = {name: [query_ids[n] for n in numbers[:EXAMPLES]] for name, numbers in without.items()}
    return {
        "questions": len(np.unique(question_N)),
        "questions_labelled": len(kept),
        **counts,
        "positives": len(positive_N),
        "negatives": len(negative_N),
        **count_cut(Tokens.open(tokens), places[question_N], passage_N, lengths),
        **dropped.metrics(),
        **quality,
        **noticed([*read_notices(quality), *dropped.notices(), *of_counts(NOTICES, counts, examples)]),
    }


def unjudged(collection: Path) -> "Judged":
    """Returns the training questions without a judged passage."""
    from pipeline.data.judged import read_questions, take

    known = read_questions(collection, "train")
    return take(known, np.flatnonzero(known.lists.lengths == 0))


def positives(config: PseudoLabelsConfig, question_N: np.ndarray, logit_N: np.ndarray) -> np.ndarray:
    """Returns the places of positives, best scores first. `question_N`: ascending."""
    by_score = np.lexsort((-logit_N, question_N))
    return _first(by_score[relevance(logit_N)[by_score] > config.positive_above], question_N, config.positives)


def low(config: PseudoLabelsConfig, question_N: np.ndarray, logit_N: np.ndarray, positive_N: np.ndarray) -> np.ndarray:
    """Returns the places with scores low enough for a negative, of questions with positives, in their order."""
    labelled_N = np.isin(question_N, question_N[positive_N])
    return np.flatnonzero((relevance(logit_N) < config.negative_below) & labelled_N)


def _first(places: np.ndarray, question_N: np.ndarray, number: int | None) -> np.ndarray:
    """Returns the first `number` places of each question; None: all."""
    from pipeline.data.runs import ranks

    return places[ranks(question_N[places]) <= number] if number is not None else places
