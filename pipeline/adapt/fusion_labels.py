"""Soft labels by the fusion of BM25 and the model that fine-tuning starts from, of each training question's passages.

A fine-tuning on them moves the model towards a ranking that is at least as good as its own, also where a question's one
judged passage is not its best: plain contrastive training on generated questions can harm a strong model (arXiv
2502.19712).

Shapes: N pairs, R rows of a run.
"""

from pathlib import Path

import numpy as np

from pipeline.data.runs import Run, read_run
from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.evaluate.fusion.fuse import EQUAL, fuse
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig, read_pairs
from pipeline.notices import noticed
from pipeline.runtime.work import Metrics, Work


def fusion_labels(
    config: SoftLabelsConfig, collection: Path, bm25: Path, run: Path, mined: Path | None, work: Work
) -> Metrics:
    """Writes `scores.parquet` (query_id, passage_id, score: float32), as the stage `soft_labels` does.

    A score is that of the z-normalised sum with equal weights over both lists of the question; of a passage in neither
    list the lowest of them. `run`: of the training questions by the model that fine-tuning starts from. Metrics: the
    numbers of questions and pairs, how often a judged passage has the highest score, and the share of pairs in neither
    list. Raises InputError if a run has no training question, or if no question has a judged passage.
    """
    from pipeline.data.barred import Dropped
    from pipeline.finetune.score_table import write_scores

    query_ids = read_table(collection / "queries.parquet", columns=["query_id"]).column(0).combine_chunks()
    passage_ids = read_table(collection / "passages.parquet", columns=["passage_id"]).column(0).combine_chunks()
    dropped = Dropped()
    pairs = read_pairs(config, collection, bm25, mined, dropped)
    runs = []
    for folder in (bm25, run):
        found = read_run(folder, "train", query_ids, passage_ids)
        if found is None:
            raise InputError(f"{folder / 'run.parquet'}: has no training question; search.splits must have train")
        runs.append(found)
    score_N, listed_N = look_up(fuse(runs, EQUAL), pairs.query_N, pairs.passage_N)
    write_scores(work.out / "scores.parquet", collection, pairs.query_N, pairs.passage_N, score_N.astype(np.float32))
    return {
        **pairs.metrics(score_N),
        "unlisted_share": float(1 - listed_N.mean()),
        **dropped.metrics(),
        **noticed(dropped.notices()),
    }


def look_up(run: Run, query_N: np.ndarray, passage_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs' scores, float64 [N], and which pairs the run has, bool [N].

    A pair that it lacks has the lowest score of its question; 0 if the question has no list.
    """
    from pipeline.finetune.score_table import by_pair, find

    score_N = find(by_pair(run.question_R, run.passage_R, run.score_R), query_N, passage_N)
    lowest_Q = np.full(1 + max(int(query_N.max(initial=0)), int(run.question_R.max(initial=0))), np.inf)
    np.minimum.at(lowest_Q, run.question_R, run.score_R)
    lowest_N = np.where(np.isfinite(lowest_Q[query_N]), lowest_Q[query_N], 0.0)
    listed_N = ~np.isnan(score_N)
    return np.where(listed_N, score_N, lowest_N), listed_N
