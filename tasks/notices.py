"""Texts that explain a stage's counts to the user: what was dropped, cut or filled up (`Stage.notices`).

These texts are for counts that several stages have. Stages that know examples, or need more than a count, return
their own notices. Evaluation's counts are lines under its tables.
"""

from collections.abc import Mapping

from pipeline.notices import noticed, of_counts, read_notices
from pipeline.runtime.work import Metrics

NoticeTexts = Mapping[str, tuple[str, str]]
"""{count: (what is counted, advice)}."""

SHORTER = "or shorten the passages: ingest.passage_words"
CUT = {
    "questions_cut": (
        "questions cut for the cross-encoder",
        "raise cross_encoder.question_tokens as far as the model allows",
    ),
    "passages_cut": (
        "passages cut for the cross-encoder",
        f"raise cross_encoder.passage_tokens as far as the model allows, {SHORTER}",
    ),
}
CUT_IN_TRAINING = {
    "questions_cut": ("training questions cut", "raise encoder.question_tokens as far as the model allows"),
    "passages_cut": (
        "positives and negatives cut",
        f"raise SECTION.passage_tokens as far as the model allows, {SHORTER}",
    ),
}
SKIPPED = {"updates_skipped": ("updates skipped, without a finite loss and gradient", "optimiser.learning_rate")}
FILLED = {
    "negatives_filled": (
        "negatives an epoch drawn from the whole collection, as questions have too few of their own",
        "bm25.negatives_depth, mine.number",
    )
}


def with_notices(texts: NoticeTexts, metrics: Metrics, section: str) -> Metrics:
    """Returns the metrics with a line for each count in `texts` that is not 0, after the stage's own lines.

    `section`: the recipe's section of the stage, which SECTION in an advice stands for.
    """
    own = {name: (what, advice.replace("SECTION", section)) for name, (what, advice) in texts.items()}
    return {**metrics, **noticed([*read_notices(metrics), *of_counts(own, metrics)])}
