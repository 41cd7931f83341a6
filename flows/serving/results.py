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


class Lists(NamedTuple):
    """A question's ranked passages; None: its search method does not use this retriever."""

    bm25: Ranking | None
    dense: Ranking | None


def rank_results(
    session: "Session",
    questions: Sequence["Question"],
    lists: Sequence[Lists | Failure],
    masks: Mapping[str | None, Mask | InputError],
) -> list[Ranking | Failure]:
    """The documents of each question, each by its best passage that the question's condition allows.

    For a question that is to be reranked, all allowed passages of its list, or of the fusion of its two lists.
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
    results |= {place: single.pop(place) for place in reranked if place in single}
    for fuse_lists, some in (
        (fuse_passages, {place: both.pop(place) for place in reranked if place in both}),
        (fuse_results, both),
    ):
        if some:
            mask_Q = [cast(Mask, masks[questions[place].where]) for place in some]
            results |= zip(some, fuse_lists(session, [*some.values()], mask_Q), strict=True)
    results |= zip(single, as_documents(session, [*single.values()]), strict=True)
    return [results[place] for place in range(len(lists))]


def as_documents(session: "Session", lists: Sequence[Ranking]) -> list[Ranking]:
    """The documents of lists of passages."""
    if not lists:
        return []
    run = as_run(lists)
    ranked = rank_documents(run, session.passages.documents(run.passage_R), best_three_share(session))
    return as_rankings(ranked, len(lists))


def fuse_results(session: "Session", both: Sequence[tuple[Ranking, Ranking]], mask_Q: Sequence[Mask]) -> list[Ranking]:
    """The documents of fused lists, each by its best passage that the question's mask allows. `both`: BM25, dense."""
    runs = [as_run(one) for one in zip(*both, strict=True)]
    document_R = session.passages.documents(np.concatenate([run.passage_R for run in runs]))
    documents = np.split(document_R, [len(runs[0].passage_R)])
    share = best_three_share(session)
    fused = fuse_documents(runs, documents, share, *fusion(session), lambda run: allowed(run, mask_Q))
    return as_rankings(fused, len(both))


def fuse_passages(session: "Session", both: Sequence[tuple[Ranking, Ranking]], mask_Q: Sequence[Mask]) -> list[Ranking]:
    """The passages of fused lists that the questions' masks allow. `both`: BM25, dense."""
    fused = fuse([as_run(one) for one in zip(*both, strict=True)], *fusion(session))
    return as_rankings(fused.rows(allowed(fused, mask_Q)), len(both))


def rerank_passages(
    session: "Session", questions: Sequence["Question"], lists: Sequence[Ranking]
) -> list[tuple[Ranking, np.ndarray]]:
    """(the passages of each question in their new order, rows of those that the cross-encoder has scored).

    The first `rerank` passages of each list are scored, of all questions together; the others follow, as in the stage
    `rerank`.
    """
    assert session.reranking is not None
    first = [ranking.rows_K[: question.rerank] for question, ranking in zip(questions, lists, strict=True)]
    texts = iter(session.passages.read(np.concatenate(first).tolist()))
    pairs = [
        [(question.text, passage["title"], passage["text"]) for passage in islice(texts, len(rows_K))]
        for question, rows_K in zip(questions, first, strict=True)
    ]
    scores = session.reranking.reranker.scores(pairs)
    result = []
    for ranking, rows_K, scores_K in zip(lists, first, scores, strict=True):
        if len(rows_K):
            run = Run(np.zeros(len(ranking.rows_K), np.int64), *ranking)
            (ranking,) = as_rankings(reordered(run, run.rank_R <= len(rows_K), scores_K), 1)
        result.append((ranking, rows_K))
    return result


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
