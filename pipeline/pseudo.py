"""Pseudo-labelled questions: a cross-encoder says which passages found are relevant (RocketQA, section 4.2.3)."""

from pathlib import Path

import numpy as np
from pydantic import Field, model_validator

from pipeline.collection import passage_ids, read_qrels, read_queries, schemas, write_table
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.scoring import check_cross_encoder, count_cut, relevance, score
from pipeline.work import Metrics, Work


class PseudoConfig(Config):
    depth: int = Field(ge=1)
    """Best passages of the run that are scored for each question."""
    positive_above: float = Field(ge=0, le=1)
    """Passages whose score (sigmoid of the logit) lies above are positives. 0.9 (RocketQA). As in denoise, the
    cross-encoder must have been trained pointwise."""
    negative_below: float = Field(ge=0, le=1)
    """Passages whose score lies below are negatives. 0.1 (RocketQA)."""
    positives: int = Field(ge=0)
    """Most positives kept of a question, best scores first. 0: all."""
    negatives: int = Field(ge=0)
    """Most negatives kept of a question, best ranks first. 0: all."""

    @model_validator(mode="after")
    def _apart(self) -> "PseudoConfig":
        if self.negative_below > self.positive_above:
            raise ValueError(f"negative_below ({self.negative_below}) exceeds positive_above ({self.positive_above})")
        return self


def pseudo(config: PseudoConfig, collection: Path, tokens: Path, run: Path, cross_encoder: Path, work: Work) -> Metrics:
    """Write `qrels.parquet` (split train, relevance 1) and `negatives.parquet` (source `pseudo`, rank and score of
    the run) of the training questions without a judged passage.

    Questions without a positive are left out and counted, as are those without a negative, which are kept.
    Raises InputError where the run answers no such question, or none of them gets a positive.
    """
    import pyarrow as pa

    from pipeline import runs
    from pipeline.ragged import Tokens

    lengths = check_cross_encoder(cross_encoder, tokens)
    places, query_ids = unjudged(collection)
    ids = np.array(passage_ids(collection), dtype=object)
    found = runs.read(run, "train", pa.array(query_ids, pa.string()), pa.array(ids)) if query_ids else None
    if found is None or not len(found.question_R):
        raise InputError(f"{run / 'run.parquet'}: no training question without a judged passage")
    near_R = found.rank_R <= config.depth
    question_N, passage_N, rank_N = found.question_R[near_R], found.passage_R[near_R], found.rank_R[near_R]
    score_N = found.score_R[near_R]
    logit_N = score(cross_encoder, tokens, places[question_N], passage_N, work)
    positive_N, negative_N = labels(config, question_N, logit_N)
    if not len(positive_N):
        raise InputError(f"pseudo.positive_above: no passage scores above {config.positive_above}")
    query_N, id_N = np.array(query_ids, dtype=object)[question_N], ids[passage_N]
    qrels = (("train", query_N[i], id_N[i], 1) for i in positive_N)
    negatives = ((query_N[i], id_N[i], "pseudo", int(rank_N[i]), float(score_N[i])) for i in negative_N)
    write_table(work.out / "qrels.parquet", schemas()["qrels"], qrels)
    write_table(work.out / "negatives.parquet", runs.NEGATIVES, negatives)
    questions, kept = len(np.unique(question_N)), len(np.unique(question_N[positive_N]))
    return {
        "questions": questions,
        "questions_labelled": kept,
        "questions_without_positives": questions - kept,
        "questions_without_negatives": kept - len(np.unique(question_N[negative_N])),
        "positives": len(positive_N),
        "negatives": len(negative_N),
        "questions_cut": count_cut(Tokens.open(tokens).queries, places[question_N], lengths),
    }


def unjudged(collection: Path) -> tuple[np.ndarray, list[str]]:
    """(rows of queries.parquet, ids) of the training questions without a judged passage."""
    judged = {query for query, of in read_qrels(collection, ["train"]).items() if any(r > 0 for r in of.values())}
    rows = [
        (place, query.query_id)
        for place, query in enumerate(read_queries(collection))
        if query.split == "train" and query.query_id not in judged
    ]
    return np.array([place for place, _ in rows], np.int64), [query_id for _, query_id in rows]


def labels(config: PseudoConfig, question_N: np.ndarray, logit_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of positives, best scores first, and of negatives of the same questions, best ranks first.

    `question_N`: ascending, a question's passages in the order of their ranks.
    """
    relevance_N = relevance(logit_N)
    by_score = np.lexsort((-logit_N, question_N))
    positives = by_score[relevance_N[by_score] > config.positive_above]
    labelled_N = np.isin(question_N, question_N[positives])
    negatives = np.flatnonzero((relevance_N < config.negative_below) & labelled_N)
    return _first(positives, question_N, config.positives), _first(negatives, question_N, config.negatives)


def _first(places: np.ndarray, question_N: np.ndarray, number: int) -> np.ndarray:
    """The first `number` places of each question; 0: all."""
    from pipeline.runs import ranks

    return places[ranks(question_N[places]) <= number] if number else places
