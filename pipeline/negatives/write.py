"""Writes the artifact of negatives, mined or from a file."""

import heapq
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np

from pipeline.data.barred import Dropped
from pipeline.data.collection import write_table
from pipeline.data.ids import hash_id
from pipeline.errors import InputError
from pipeline.negatives.ranking import QuestionNegatives, SamplingConfig, best_place
from pipeline.notices import notice, noticed
from pipeline.runtime.work import Metrics, Work

SHORT = {"mined": "mine.depth, mine.number", "given": "negatives_file.number"}
"""{source: the fields to change if questions have few negatives}."""
OTHERS = "training takes other negatives for them"


def write_negatives(
    chosen: Iterable[QuestionNegatives],
    dropped: Dropped,
    config: SamplingConfig,
    *,
    source: str,
    expected: Collection[str] = (),
    positives: dict[str, tuple[str, ...]],
    collection: Path,
    work: Work,
) -> Metrics:
    """Writes `negatives.parquet`, `negatives.json` (the metrics) and `negatives.html` (the page).

    `chosen`: each question once. `dropped`: counts of dropped candidates, by reason; they may grow while `chosen` is
    read. `expected`: reasons without a notice. `positives`: see `train_positives`.
    Raises InputError if no question has a remaining negative.
    """
    from pipeline.data.runs import NEGATIVES
    from pipeline.negatives.page import write_page

    counts = Counter(dict.fromkeys(("questions", "questions_short", "questions_empty", "negatives_above_positive"), 0))
    unlisted, short = dict.fromkeys(positives), list[str]()
    empty, unranked = list[str](), list[str]()  # unranked: empty, and no positive has a score
    drawn: list[tuple[int, str, QuestionNegatives]] = []
    enough = config.number or 0

    def rows() -> Iterator[tuple[str, str, str, int, float | None]]:
        for taken in chosen:
            ranking = taken.ranking
            best = best_place(ranking, positives.get(ranking.query_id, ()))
            counts.update(
                questions=1,
                questions_short=int(len(taken.places) < enough),
                questions_empty=int(len(taken.places) == 0),
                negatives_above_positive=0 if best is None else int((taken.places < best).sum()),
            )
            unlisted.pop(ranking.query_id, None)
            if len(taken.places) < max(1, enough):
                without = unranked if best is None else empty
                (short if len(taken.places) else without).append(ranking.query_id)
            if config.page_questions and ranking.query_id in positives:
                push = heapq.heappush if len(drawn) < config.page_questions else heapq.heappushpop
                push(drawn, (hash_id(f"{config.seed} {ranking.query_id}"), ranking.query_id, taken))
            work.progress(counts["questions"], len(positives), "questions")
            for i in taken.places:
                score = float(ranking.scores[i])
                yield ranking.query_id, ranking.passage_ids[i], source, int(i) + 1, None if np.isnan(score) else score

    negatives = write_table(work.out / "negatives.parquet", NEGATIVES, rows())
    if not negatives:
        reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(dropped.counts.items()))
        raise InputError(f"{source} negatives: no question has a negative left; dropped: {reasons}")
    kept = {"questions": counts.pop("questions"), "negatives": negatives, **counts, "questions_absent": len(unlisted)}
    metrics: Metrics = {**kept, **dropped.metrics()}
    (work.out / "negatives.json").write_text(json.dumps(metrics, indent=1, sort_keys=True) + "\n")
    if config.page_questions:
        shown = [taken for _, _, taken in sorted(drawn, key=lambda entry: entry[:2])]
        write_page(work.out / "negatives.html", collection, source, shown, positives, metrics)
    shortages = [
        notice(what, len(queries), [*queries], advice)
        for what, queries, advice in (
            *_without(config, empty, unranked),
            (f"questions left with fewer negatives than {config.number}", short, SHORT.get(source, "")),
            ("training questions not listed", unlisted, ""),
        )
        if queries
    ]
    return metrics | noticed([*dropped.notices(expected), *shortages])


def _without(config: SamplingConfig, empty: list[str], unranked: list[str]) -> list[tuple[str, list[str], str]]:
    """Returns (what, questions, advice) of questions without a negative. `unranked`: with no positive in the run."""
    fields = ("margin_absolute", "margin_relative")
    margins = [f"mine.{name}" for name in fields if getattr(config, name, None) is not None]
    if not margins:
        return [("questions left without a negative", [*empty, *unranked], OTHERS)]
    lower = f"lower {' and '.join(margins)}; {OTHERS}"
    return [
        ("questions without a candidate below the margin", empty, f"raise mine.depth, or {lower}"),
        (
            "questions without a candidate below the margin, as no positive is in the run",
            unranked,
            f"raise search.train_depth and mine.depth; {OTHERS}",
        ),
    ]
