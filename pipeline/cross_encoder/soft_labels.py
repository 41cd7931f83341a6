"""Soft labels: a cross-encoder's logits of each training question's own passages (coCondenser, section 5.1)."""

from functools import partial
from pathlib import Path

from pipeline.cross_encoder.folds import score_unseen
from pipeline.cross_encoder.lengths import check_cross_encoder, count_cut
from pipeline.cross_encoder.teacher_quality import teacher_quality
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig, read_pairs
from pipeline.notices import noticed, read_notices
from pipeline.runtime.work import Metrics, Work


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

    `cross_encoders`: one, or one for each fold: then a question is scored by the one that was trained without it.
    `run`: the student's so far, for metrics and a notice (teacher_quality.py). The metrics also give how often a judged
    passage has the highest score, and count the listed negatives that were dropped and the truncated questions and
    passages.
    Raises InputError if the cross-encoder does not fit the tokens, or if no training question has a judged passage.
    """
    from pipeline.data.barred import Dropped
    from pipeline.finetune.score_table import write_scores
    from pipeline.tokenization.token_files import Tokens

    lengths, *_ = [check_cross_encoder(folder, tokens) for folder in cross_encoders.values()]  # folds have the same
    scored = partial(score_unseen, cross_encoders, collection, tokens, work=work)
    dropped = Dropped()
    pairs = read_pairs(config, collection, bm25, mined, dropped)
    score_N = scored(pairs.query_N, pairs.passage_N)
    write_scores(work.out / "scores.parquet", collection, pairs.query_N, pairs.passage_N, score_N)
    quality = teacher_quality(partial(scored, name="dev"), collection, run)
    return {
        **pairs.metrics(score_N),
        **count_cut(Tokens.open(tokens), pairs.query_N, pairs.passage_N, lengths),
        **dropped.metrics(),
        **quality,
        **noticed([*read_notices(quality), *dropped.notices()]),
    }
