"""Soft labels: a cross-encoder's logits of each training question's own passages (coCondenser, section 5.1)."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from pipeline.config import Config
from pipeline.cross_encoder.folds import score_unseen
from pipeline.cross_encoder.lengths import check_cross_encoder, count_cut
from pipeline.cross_encoder.teacher_quality import teacher_quality
from pipeline.data.parquet import parquet_writer
from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.finetune.training_pools import check_questions, first_negatives
from pipeline.notices import noticed, read_notices
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work

ROWS = 1 << 20
"""Rows of scores.parquet written at a time."""


class SoftLabelsConfig(Config):
    negatives_from: Literal["bm25", "collection"]
    """First negatives, as in the fine-tuning that reads the scores."""
    negative_depth: int | None = Field(ge=1)
    """First negatives of each question that are scored, best first. null: all. At least fine-tuning's."""


def check_collection(node: Planned) -> Iterator[InputError]:
    """Questions, and negatives as the fine-tuning that reads the scores has them; an early check."""
    return check_questions(node, "stage2")


def soft_labels(
    config: SoftLabelsConfig,
    collection: Path,
    tokens: Path,
    bm25: Path,
    mined: Path | None,
    work: Work,
    run: Path | None = None,
    **cross_encoders: Path,
) -> Metrics:
    """Writes `scores.parquet` (query_id, passage_id, score: the logit, float32), questions in the collection's order.

    A question's passages are its judged ones, then its first negatives, then all mined ones, without duplicates.
    `cross_encoders`: one, or one for each fold: then a question is scored by the one that was trained without it.
    `run`: the student's so far, for metrics and a notice (teacher_quality.py). The metrics also give how often a judged
    passage has the highest score, and count the listed negatives that were dropped (pipeline/data/barred.py) and the
    truncated questions and passages.
    Raises InputError if the cross-encoder does not fit the tokens, or if no training question has a judged passage.
    """
    from pipeline.data.barred import Dropped
    from pipeline.finetune.pools import join_lists, read_pools
    from pipeline.tokenization.token_files import Tokens

    lengths, *_ = [check_cross_encoder(folder, tokens) for folder in cross_encoders.values()]  # folds have the same
    scored = partial(score_unseen, cross_encoders, collection, tokens, work=work)
    first = first_negatives(config.negatives_from, collection, bm25)
    dropped = Dropped()
    pools = read_pools(collection, first, config.negative_depth, bm25=bm25, mined=mined, dropped=dropped)
    own = join_lists(pools.judged, *pools.negatives)
    query_N = pools.queries.repeat(own.lengths)
    score_N = scored(query_N, own.flat)
    _write(work.out / "scores.parquet", collection, query_N, own.flat, score_N)
    place_N = np.arange(len(own.flat)) - own.offsets[:-1].repeat(own.lengths)
    judged_N = place_N < pools.judged.lengths.repeat(own.lengths)
    best = np.maximum.reduceat(score_N, own.offsets[:-1])
    best_judged = np.maximum.reduceat(np.where(judged_N, score_N, -np.inf), own.offsets[:-1])
    quality = teacher_quality(partial(scored, name="dev"), collection, run)
    return {
        "questions": len(own),
        "pairs": len(query_N),
        "judged_first": float((best == best_judged).mean()),
        **count_cut(Tokens.open(tokens), query_N, own.flat, lengths),
        **dropped.metrics(),
        **quality,
        **noticed([*read_notices(quality), *dropped.notices()]),
    }


def _write(path: Path, collection: Path, query_N: np.ndarray, passage_N: np.ndarray, score_N: np.ndarray) -> None:
    import pyarrow as pa

    query_ids = read_table(collection / "queries.parquet", columns=["query_id"]).column(0)
    passage_ids = read_table(collection / "passages.parquet", columns=["passage_id"]).column(0)
    schema = pa.schema([("query_id", pa.string()), ("passage_id", pa.string()), ("score", pa.float32())])
    with parquet_writer(path, schema, compression="zstd", use_dictionary=["query_id"]) as writer:
        for start in range(0, len(query_N), ROWS):
            part = slice(start, start + ROWS)
            ids = [query_ids.take(pa.array(query_N[part])), passage_ids.take(pa.array(passage_N[part]))]
            writer.write_table(pa.table([*ids, pa.array(score_N[part])], schema=schema))
