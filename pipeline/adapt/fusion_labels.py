"""Soft labels by the fusion of BM25 and the model that fine-tuning starts from, of each training question's passages.

A fine-tuning on them moves the model towards a ranking that is at least as good as its own, also where a question's one
judged passage is not its best: plain contrastive training on generated questions can harm a strong model (arXiv
2502.19712).

Shapes: N pairs, R rows of a run.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from pipeline.config import Config
from pipeline.data.runs import Run, read_run
from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.evaluate.fusion.fuse import EQUAL, fuse
from pipeline.finetune.training_pools import first_negatives
from pipeline.notices import noticed
from pipeline.runtime.work import Metrics, Work


class FusionLabelsConfig(Config):
    negatives_from: Literal["bm25", "collection"]
    """First negatives, as in the fine-tuning that reads the scores."""
    negative_depth: int | None = Field(ge=1)
    """First negatives of each question that are scored, best first. null: all. At least fine-tuning's."""


def fusion_labels(
    config: FusionLabelsConfig, collection: Path, bm25: Path, run: Path, mined: Path | None, work: Work
) -> Metrics:
    """Writes `scores.parquet` (query_id, passage_id, score: float32), as the stage `soft_labels` does.

    A score is that of the z-normalised sum with equal weights over both lists of the question; of a passage in neither
    list the lowest of them. `run`: of the training questions by the model that fine-tuning starts from. Metrics: the
    numbers of questions and pairs, how often a judged passage has the highest score, and the share of pairs in neither
    list. Raises InputError if a run has no training question, or if no question has a judged passage.
    """
    import pyarrow as pa

    from pipeline.data.barred import Dropped
    from pipeline.data.parquet import write_parquet
    from pipeline.finetune.pools import join_lists, read_pools

    query_ids = read_table(collection / "queries.parquet", columns=["query_id"]).column(0).combine_chunks()
    passage_ids = read_table(collection / "passages.parquet", columns=["passage_id"]).column(0).combine_chunks()
    dropped = Dropped()
    first = first_negatives(config.negatives_from, collection, bm25)
    pools = read_pools(collection, first, config.negative_depth, bm25=bm25, mined=mined, dropped=dropped)
    own = join_lists(pools.judged, *pools.negatives)
    query_N = pools.queries.repeat(own.lengths)
    runs = []
    for folder in (bm25, run):
        found = read_run(folder, "train", query_ids, passage_ids)
        if found is None:
            raise InputError(f"{folder / 'run.parquet'}: has no training question; search.splits must have train")
        runs.append(found)
    score_N, listed_N = look_up(fuse(runs, EQUAL), query_N, own.flat)
    columns = {
        "query_id": query_ids.take(pa.array(query_N)),
        "passage_id": passage_ids.take(pa.array(own.flat)),
        "score": pa.array(score_N.astype(np.float32)),
    }
    write_parquet(pa.table(columns), work.out / "scores.parquet", compression="zstd", use_dictionary=["query_id"])
    place_N = np.arange(len(own.flat)) - own.offsets[:-1].repeat(own.lengths)
    judged_N = place_N < pools.judged.lengths.repeat(own.lengths)
    best = np.maximum.reduceat(score_N, own.offsets[:-1])
    best_judged = np.maximum.reduceat(np.where(judged_N, score_N, -np.inf), own.offsets[:-1])
    return {
        "questions": len(own),
        "pairs": len(query_N),
        "judged_first": float((best == best_judged).mean()),
        "unlisted_share": float(1 - listed_N.mean()),
        **dropped.metrics(),
        **noticed(dropped.notices()),
    }


def look_up(run: Run, query_N: np.ndarray, passage_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs' scores, float64 [N], and which pairs the run has, bool [N].

    A pair that it lacks has the lowest score of its question; 0 if the question has no list.
    """
    passages = 1 + max(int(run.passage_R.max(initial=0)), int(passage_N.max(initial=0)))
    key_R, key_N = run.question_R * passages + run.passage_R, query_N.astype(np.int64) * passages + passage_N
    by_R = np.argsort(key_R, kind="stable")
    place_N = np.minimum(np.searchsorted(key_R, key_N, sorter=by_R), max(len(key_R) - 1, 0))
    lowest_Q = np.full(1 + max(int(query_N.max(initial=0)), int(run.question_R.max(initial=0))), np.inf)
    np.minimum.at(lowest_Q, run.question_R, run.score_R)
    lowest_N = np.where(np.isfinite(lowest_Q[query_N]), lowest_Q[query_N], 0.0)
    if not len(key_R):
        return lowest_N, np.zeros(len(key_N), bool)
    at_N = by_R[place_N]
    listed_N = key_R[at_N] == key_N
    return np.where(listed_N, run.score_R[at_N], lowest_N), listed_N
