"""From a question's ranked passages to its documents: fused, reranked, each document by its best passage."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from flows.serving.rankings import Failure, Mask, Ranking, as_rankings, as_run
from pipeline.cross_encoder.rerank import reordered
from pipeline.data.runs import Run
from pipeline.errors import InputError
from pipeline.evaluate.document_ranking import fuse_documents, rank_documents
from pipeline.evaluate.fusion.fuse import Choice, fuse

if TYPE_CHECKING:
    from flows.serving.question import Question, Session

Scored = dict[int, float]
"""{row of a passage: its score by the cross-encoder}, of one question."""


class Lists(NamedTuple):
    """A question's ranked passages; None: its search method does not use this retriever."""

    bm25: Ranking | None
    dense: Ranking | None


def rank_results(
    session: "Session",
    questions: Sequence["Question"],
    lists: Sequence[Lists | Failure],
    masks: Mapping[str | None, Mask | InputError],
    scored: Sequence[Scored],
) -> list[Ranking | Failure]:
    """The documents of each question, each by its best passage that the question's condition allows.

    For a question that is reranked, the cross-encoder orders the passages of its list, or of the fusion of its two
    lists, before their documents are ranked. `scored`: of each question; its new scores are added.
    """
    results: dict[int, Ranking | Failure] = {}
    single: dict[int, Ranking] = {}
    both: dict[int, tuple[Ranking, Ranking]] = {}
    for place, one in enumerate(lists):
        if not isinstance(one, Lists):
            results[place] = one
        elif one.bm25 is not None and one.dense is not None:
            both[place] = one.bm25, one.dense
        else:
            single[place] = cast(Ranking, one.bm25 or one.dense)
    reranked = [place for place in (*single, *both) if questions[place].rerank]
    fused = {place: both.pop(place) for place in reranked if place in both}
    if fused:
        single |= zip(fused, fuse_passages(session, questions, fused, masks), strict=True)
    if reranked:
        given = [(questions[place], single[place], scored[place]) for place in reranked]
        single |= zip(reranked, rerank_passages(session, given), strict=True)
    if single:
        run = as_run([*single.values()])
        ranked = rank_documents(run, session.passages.documents(run.passage_R), best_three_share(session))
        results |= zip(single, as_rankings(ranked, len(single)), strict=True)
    if both:
        results |= zip(both, fuse_results(session, questions, both, masks), strict=True)
    return [results[place] for place in range(len(lists))]


def fuse_results(
    session: "Session",
    questions: Sequence["Question"],
    both: Mapping[int, tuple[Ranking, Ranking]],
    masks: Mapping[str | None, Mask | InputError],
) -> list[Ranking]:
    """The documents of the fused lists of questions {place: (BM25, dense)}."""
    runs = [as_run(one) for one in zip(*both.values(), strict=True)]
    document_R = session.passages.documents(np.concatenate([run.passage_R for run in runs]))
    documents = np.split(document_R, [len(runs[0].passage_R)])
    mask_Q = [cast(Mask, masks[questions[place].where]) for place in both]
    fused = fuse_documents(
        runs, documents, best_three_share(session), *fusion(session), lambda run: allowed(run, mask_Q)
    )
    return as_rankings(fused, len(both))


def fuse_passages(
    session: "Session",
    questions: Sequence["Question"],
    both: Mapping[int, tuple[Ranking, Ranking]],
    masks: Mapping[str | None, Mask | InputError],
) -> list[Ranking]:
    """The allowed passages of the fused lists of questions {place: (BM25, dense)}."""
    fused = fuse([as_run(one) for one in zip(*both.values(), strict=True)], *fusion(session))
    return as_rankings(
        fused.rows(allowed(fused, [cast(Mask, masks[questions[place].where]) for place in both])), len(both)
    )


def rerank_passages(session: "Session", given: Sequence[tuple["Question", Ranking, Scored]]) -> list[Ranking]:
    """The lists with their first `rerank` passages by the cross-encoder's score; all questions are scored together.

    The other passages follow, as in the stage `rerank`.
    """
    assert session.reranking is not None
    run = as_run([ranking for _, ranking, _ in given])
    if not len(run.passage_R):
        return [ranking for _, ranking, _ in given]
    near_R = run.rank_R <= np.array([question.rerank for question, _, _ in given])[run.question_R]
    rows = [one.rows_K.tolist() for one in as_rankings(run.rows(near_R), len(given))]
    new = [[row for row in first if row not in scored] for first, (_, _, scored) in zip(rows, given, strict=True)]
    texts = iter(session.passages.read([row for some in new for row in some]))
    pairs = [
        [(question.text, passage["title"], passage["text"]) for passage in islice(texts, len(some))]
        for some, (question, _, _) in zip(new, given, strict=True)
    ]
    for some, (_, _, scored), scores in zip(new, given, session.reranking.reranker.scores(pairs), strict=True):
        scored |= zip(some, scores.tolist(), strict=True)
    score_N = [scored[row] for first, (_, _, scored) in zip(rows, given, strict=True) for row in first]
    return as_rankings(reordered(run, near_R, np.array(score_N)), len(given))


def fusion(session: "Session") -> tuple[Choice, float]:
    """How the run's evaluation fuses."""
    chosen = session.engine.metrics["fusion"]
    return Choice(chosen["method"], chosen["weight"]), session.engine.recipe["evaluate"]["reciprocal_k"]


def allowed(run: Run, mask_Q: Sequence[Mask]) -> np.ndarray:
    """Which rows of a run the masks of its questions allow, bool [R]."""
    parts = [
        np.ones(len(one.rows_K), bool) if mask is None else mask[one.rows_K]
        for one, mask in zip(as_rankings(run, len(mask_Q)), mask_Q, strict=True)
    ]
    return np.concatenate(parts)


def best_three_share(session: "Session") -> float:
    """The setting of the run's evaluation; 0 in runs of older versions."""
    return float((session.engine.recipe.get("evaluate") or {}).get("best_three_share", 0))
