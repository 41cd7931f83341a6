"""Denoised negatives: passages that a cross-encoder scores as relevant are dropped (RocketQA, section 4.2.2)."""

from pathlib import Path

import numpy as np
from pydantic import Field

from pipeline.config import Config
from pipeline.cross_encoder.score_pairs import relevance
from pipeline.data.parquet import write_parquet
from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.notices import EXAMPLES, noticed, of_counts, one_line
from pipeline.runtime.work import Metrics, Work

NOTICES = {
    "dropped": ("negatives dropped because the cross-encoder scores them as relevant", "denoise.threshold"),
    "questions_without_negatives": ("questions without a negative left", "denoise.threshold"),
}
"""{count: (what is counted, advice)}."""


class DenoiseConfig(Config):
    threshold: float = Field(ge=0, le=1)
    """Negatives with a higher score (sigmoid of the logit) are dropped. RocketQA keeps negatives below 0.1 and uses
    passages above 0.9 as positives. The cross-encoder must be trained pointwise: a listwise sigmoid has no meaning."""


def denoise(config: DenoiseConfig, mined: Path, soft_labels: Path, work: Work) -> Metrics:
    """Writes `negatives.parquet`: the mined negatives at or below the threshold, in their order.

    The metrics count dropped negatives, and questions without a remaining negative.
    Raises InputError for a negative without a score, and if no negative remains.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from pipeline.finetune.score_table import find, read_scores

    path = mined / "negatives.parquet"
    table = read_table(path)
    ids = {name: pc.unique(table[name]) for name in ("query_id", "passage_id")}
    query_N, passage_N = (pc.index_in(table[name], value_set=of).to_numpy() for name, of in ids.items())
    score_N = find(read_scores(soft_labels / "scores.parquet", *ids.values()), query_N, passage_N)
    unknown = np.flatnonzero(np.isnan(score_N))
    if len(unknown):
        query_id, passage_id = (table[name][int(unknown[0])].as_py() for name in ids)
        raise InputError(
            f"{soft_labels / 'scores.parquet'}: no score of passage '{one_line(passage_id)}' for query "
            f"'{one_line(query_id)}', a negative of {path} ({len(unknown)} such); score these negatives"
        )
    kept_N = relevance(score_N) <= config.threshold
    if not kept_N.any():
        raise InputError(f"denoise.threshold: none of {len(score_N)} negatives scores at most {config.threshold}")
    write_parquet(table.filter(pa.array(kept_N)), work.out / "negatives.parquet", compression="zstd")
    without = ids["query_id"].filter(pa.array(~np.isin(np.arange(len(ids["query_id"])), query_N[kept_N])))
    counts = {
        "questions": len(ids["query_id"]),
        "negatives": int(kept_N.sum()),
        "dropped": int((~kept_N).sum()),
        "questions_without_negatives": len(without),
    }
    dropped = table.filter(pa.array(~kept_N)).slice(0, EXAMPLES).to_pylist()
    examples = {
        "dropped": [f"{row['passage_id']} for {row['query_id']}" for row in dropped],
        "questions_without_negatives": without[:EXAMPLES].to_pylist(),
    }
    return {**counts, **noticed(of_counts(NOTICES, counts, examples))}
