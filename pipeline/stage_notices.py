"""What a stage's counts mean to the user, for the counts of something dropped, cut or filled up.

Stages that know examples, or need more than a count, give their notices themselves: ingest, tokenizer, bm25, mine,
given, denoise, pseudo, encode, search. Evaluation's counts are lines under its tables.
"""

from pipeline.notices import noticed, of_counts, read_notices
from pipeline.runtime.work import Metrics

CUT = {
    "questions_cut": ("questions cut for the cross-encoder", "cross_encoder.question_tokens"),
    "passages_cut": ("passages cut for the cross-encoder", "cross_encoder.passage_tokens"),
}
CUT_IN_TRAINING = {
    "questions_cut": ("training questions cut", "encoder.question_tokens"),
    "passages_cut": ("positives and negatives cut", "passage_tokens of this stage"),
}
SKIPPED = {"updates_skipped": ("updates skipped, without a finite loss and gradient", "optimiser.learning_rate")}
FILLED = {
    "negatives_filled": (
        "negatives an epoch drawn from the whole collection, as questions have too few of their own",
        "bm25.negatives_depth, mine.number",
    )
}

NOTICES = {
    "tokens": {
        "passages_cut": ("passages cut", "tokens.max_tokens"),
        "passages_without_tokens": ("passages whose text has no token, so that their titles alone are read", ""),
    },
    "ict": {
        "passages_one_sentence": ("passages left out of ICT, of one sentence", ""),
        "passages_without_segment": (
            "passages left out of ICT, without a long enough sentence",
            "ict.segment_min",
        ),
    }
    | SKIPPED,
    "condenser": SKIPPED,
    "cocondenser": {"documents_too_short": ("documents left out, too short for two spans", "cocondenser.span_min")}
    | SKIPPED,
    "finetune": CUT_IN_TRAINING | FILLED | SKIPPED,
    "cross_encoder": FILLED | CUT | SKIPPED,
    "scores": CUT,
    "pseudo": CUT,
    "rerank": CUT,
    "sentence_table": {
        f"{split}_left_out": (f"rows of {split} left out by their label", "left_out")
        for split in ("train", "dev", "test")
    }
    | {f"{split}_in_train": (f"rows of {split} that are in train too", "") for split in ("dev", "test")},
}
"""{stage: {count: (what is counted, advice)}}."""


def with_notices(stage: str, metrics: Metrics) -> Metrics:
    """The metrics, with a line for each count of `NOTICES` that is not 0 behind the stage's own lines."""
    return {**metrics, **noticed([*read_notices(metrics), *of_counts(NOTICES.get(stage, {}), metrics)])}
