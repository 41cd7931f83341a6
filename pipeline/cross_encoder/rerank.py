"""Reranking: cross-encoders score the first passages of every list."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, field_validator

from pipeline.config import Config, each_once
from pipeline.cross_encoder.lengths import check_cross_encoder, count_cut
from pipeline.cross_encoder.score_pairs import mean_score
from pipeline.data.collection import passage_ids, read_queries
from pipeline.data.documents import are_cut
from pipeline.errors import InputError
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from pipeline.data.runs import Run

STEP = 2.0**-10
"""Difference between the scores of passages that are not reranked."""


@dataclass(frozen=True)
class SplitRun:
    """The run of a split. Q questions of the split, R rows of the run."""

    split: str
    place_Q: np.ndarray
    """Rows of queries.parquet."""
    id_Q: np.ndarray
    run: "Run"
    near_R: np.ndarray
    """bool: which rows are reranked."""


class RerankConfig(Config):
    splits: list[Literal["dev", "test"]] = Field(min_length=1)
    """Splits whose lists are reranked; the written run holds only these."""
    depth: int = Field(ge=1)
    """First passages of each question that are scored. 1,000 in coCondenser's leaderboard run."""

    @field_validator("splits")
    @classmethod
    def _each_once(cls, splits: list[str]) -> list[str]:
        return each_once(splits)


def rerank(
    config: RerankConfig, collection: Path, tokens: Path, run: Path, work: Work, **cross_encoders: Path
) -> Metrics:
    """Writes `run.parquet` and `run.trec`: the lists of `run` with their first `depth` passages in a new order.

    Several cross-encoders are an ensemble: the mean of their logits, without standardisation. The constant that a
    listwise training adds to all scores of a question cancels out, and a less confident model has less influence, as it
    should. Passages beyond `depth` follow in their order, each STEP below the previous one: close to the worst reranked
    passage, so that a fusion that scales scores keeps the distances between reranked passages.
    Raises InputError if a cross-encoder does not fit the tokens, or if the run has no list of the splits.
    """
    from pipeline.data import runs
    from pipeline.tokenization.token_files import Tokens

    lengths = [check_cross_encoder(folder, tokens) for folder in cross_encoders.values()]
    ids = np.array(passage_ids(collection), dtype=object)
    lists = _lists(config, collection, run, ids)
    near = [one.run.rows(one.near_R) for one in lists]
    query_N = np.concatenate([one.place_Q[rows.question_R] for one, rows in zip(lists, near, strict=True)])
    passage_N = np.concatenate([rows.passage_R for rows in near])
    score_N = mean_score(cross_encoders, tokens, query_N, passage_N, work)

    ends = np.cumsum([one.near_R.sum() for one in lists])[:-1]
    with runs.writer(work.out, are_cut(collection)) as write:
        for one, new_N in zip(lists, np.split(score_N, ends), strict=True):
            new = reordered(one.run, one.near_R, new_N)
            write(one.split, one.id_Q[new.question_R].tolist(), ids[new.passage_R].tolist(), new.score_R)
    cut = [count_cut(Tokens.open(tokens), query_N, passage_N, one) for one in lengths]
    return {
        "questions": len(np.unique(query_N)),
        "pairs": len(query_N),
        "cross_encoders": len(cross_encoders),
        **{name: max(counts[name] for counts in cut) for name in cut[0]},
    }


def _lists(config: RerankConfig, collection: Path, run: Path, ids: np.ndarray) -> list[SplitRun]:
    import pyarrow as pa

    from pipeline.data import runs

    queries, known, lists = read_queries(collection), pa.array(ids, pa.string()), []
    for split in config.splits:
        place_Q = np.array([place for place, query in enumerate(queries) if query.split == split], np.int64)
        id_Q = np.array([queries[place].query_id for place in place_Q], dtype=object)
        part = runs.read_run(run, split, pa.array(id_Q, pa.string()), known)
        if part is not None and len(part.question_R):
            lists.append(SplitRun(split, place_Q, id_Q, part, part.rank_R <= config.depth))
    if not lists:
        raise InputError(f"{run / 'run.parquet'}: no question of {' or '.join(config.splits)}")
    return lists


def reordered(run: "Run", near_R: np.ndarray, score_N: np.ndarray) -> "Run":
    """Returns the run with new scores for its rows `near_R`, each question's first rows; the others stay after them."""
    from pipeline.data.runs import ranked

    start_Q = np.flatnonzero(run.rank_R == 1)
    length_Q = np.diff(np.append(start_Q, len(near_R)))
    score_R = np.full(len(near_R), np.inf)
    score_R[near_R] = score_N
    lowest_R = np.minimum.reduceat(score_R, start_Q).repeat(length_Q)
    beyond_R = run.rank_R - np.add.reduceat(near_R, start_Q).repeat(length_Q)
    return ranked(run.question_R, run.passage_R, np.where(near_R, score_R, lowest_R - STEP * beyond_R))
