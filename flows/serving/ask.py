"""Answers questions in a search session, many at a time.

A "place" is a question's position in the list of questions.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flows.serving.answers import Answers, describe_answers
from flows.serving.question import LONGEST, Question
from flows.serving.rankings import Failure, Mask, Ranking
from flows.serving.results import Lists, as_documents, best_three_share, rank_results, rerank_passages
from pipeline.bm25.searcher import WIDER
from pipeline.data.documents import best_rows
from pipeline.data.near_duplicates.groups import Groups
from pipeline.errors import InputError, JavaFailed
from pipeline.formatting import counted
from pipeline.notices import one_line

if TYPE_CHECKING:
    from flows.serving.question import Session

EXTRA = 5
"""Passages ranked first for each document to return: several passages may belong to one document."""
MOST = 1000
"""Maximum number of documents of an answer."""
DEEPEST = 100_000
"""Maximum length of lists that are fused and then filtered; Lucene needs a second for them. If these lists leave too
few documents, the lists are filtered first and then fused."""


class Depths(NamedTuple):
    """Lengths of a question's lists, in passages."""

    dense: int
    bm25: int


def check_question(session: "Session", question: Question) -> Question:
    """The question in a form that `ask` accepts. Raises InputError."""
    text = question.text.encode(errors="replace").decode()  # a terminal may send bytes that are not UTF-8
    where = (question.where or "").strip() or None
    if not text.strip():
        raise InputError("the question is empty")
    if len(text) > LONGEST:
        raise InputError(f"the question is too long: {len(text):,} characters (maximum {LONGEST:,})")
    if question.k < 1:
        raise InputError(f"k is {question.k:,}; the minimum is 1 document")
    if question.k > MOST:
        raise InputError(f"k is {question.k:,}; the maximum is {MOST:,} documents")
    if question.k > session.passages.count:
        raise InputError(f"k is {question.k:,}, but the collection has {counted(session.passages.count, 'passages')}")
    if question.by not in session.ways:
        unavailable = f"the run of {session.engine.run.name} has no such search method"
        raise InputError(f"by {question.by}: {session.problems.get(question.by, unavailable)}")
    check_rerank(session, question.rerank)
    return question._replace(text=text, where=where)


def check_rerank(session: "Session", number: int) -> None:
    """Raises InputError unless the session can rerank the first `number` passages."""
    if number < 0:
        raise InputError(f"rerank is {number:,}; the minimum is 0, which reranks nothing")
    if number and session.reranking is None:
        raise InputError(f"rerank is {number:,}, but nothing reranks here; `--rerank N` loads a cross-encoder")
    if session.reranking is not None and number > session.reranking.most:
        raise InputError(
            f"rerank is {number:,}; the maximum is {counted(session.reranking.most, 'passages')} (--rerank)"
        )


def question_notices(session: "Session", question: Question) -> list[str]:
    """Which parts of a checked question are not read, one line each."""
    cut = session.dense.encoder.cut(question.text) if session.dense is not None and question.by != "bm25" else ""
    if session.reranking is None or not question.rerank:
        return [cut] if cut else []
    return [line for line in (cut, session.reranking.reranker.cut(question.text)) if line]


def ask(
    session: "Session", questions: Sequence[Question], known: Mapping[str | None, Mask] = MappingProxyType({})
) -> list[Answers]:
    """The best k documents of each checked question, each with its best passage. Of documents whose best
    passages almost equal each other, only the best one.

    The answers to a question do not depend on the other questions.
    `known`: masks of conditions that were evaluated before.
    """
    conditions = {question.where for question in questions}
    masks = {where: known[where] if where in known else _mask(session, where) for where in conditions}
    results: dict[int, Ranking | Failure] = {}
    depths, found = {}, dict[int, Ranking]()
    for place, question in enumerate(questions):
        mask = masks[question.where]
        if isinstance(mask, InputError):
            results[place] = mask
        else:
            depths[place] = first_depths(session, question)
    while depths:  # until each list has k documents, or ends
        asked = [questions[place] for place in depths]
        lists = rank_passages(session, [*zip(asked, depths.values(), strict=True)], masks)
        deeper = {}
        for place, passages, ranking in zip(depths, lists, rank_results(session, asked, lists, masks), strict=True):
            question, results[place] = questions[place], ranking
            if isinstance(ranking, Ranking):
                if place in found:
                    ranking = append_deeper(found[place], ranking, documents_of(session, question))
                found[place] = ranking
                results[place] = shown = shown_documents(session, question, ranking)
                is_enough = len(shown.rows_K) >= question.k and len(ranking.rows_K) >= question.rerank
                if not is_enough and has_more(session, question, depths[place], passages):
                    deeper[place] = Depths(*(WIDER * length for length in depths[place]))
        depths = deeper
    scored: dict[int, set[int]] = {}
    reranked = [place for place in found if questions[place].rerank]
    if reranked:
        asked = [questions[place] for place in reranked]
        new = rerank_passages(session, asked, [found[place] for place in reranked])
        for place, question, (ranking, scored_K) in zip(reranked, asked, new, strict=True):
            results[place], scored[place] = shown_documents(session, question, ranking), {*scored_K.tolist()}
    rankings = [results[place] for place in range(len(questions))]
    all_masks = [masks[question.where] for question in questions]
    return describe_answers(
        session, questions, rankings, all_masks, [scored.get(n, set()) for n in range(len(questions))]
    )


def documents_of(session: "Session", question: Question) -> Callable[[np.ndarray], np.ndarray]:
    """Rows -> numbers of what a question's list holds: documents, or passages that will be reranked."""
    return np.asarray if question.rerank else session.passages.documents


def shown_documents(session: "Session", question: Question, ranking: Ranking) -> Ranking:
    """The documents to show of a question's list (see `rank_results`)."""
    documents = as_documents(session, [ranking])[0] if question.rerank else ranking
    return different(documents, question.k, session.near_duplicates)


def first_depths(session: "Session", question: Question) -> Depths:
    """Lengths of the first lists. Those of the evaluation, if scores depend on the whole list."""
    recipe = session.engine.recipe
    if question.by == "fusion" or best_three_share(session):
        return Depths(recipe["search"]["depth"], recipe["bm25"]["depth"])
    depth = max(EXTRA * question.k, question.rerank)
    return Depths(depth, depth)


def has_more(session: "Session", question: Question, depths: Depths, lists: "Lists | Failure") -> bool:
    """Whether longer lists may have more documents. A fusion uses longer lists only if the question has a condition."""
    if question.by == "fusion":
        return question.where is not None and depths.dense < min(session.passages.count, DEEPEST + 1)
    return isinstance(lists, Lists) and any(
        len(one.rows_K) >= depth for one, depth in ((lists.bm25, depths.bm25), (lists.dense, depths.dense)) if one
    )


def different(ranking: Ranking, k: int, near: Groups) -> Ranking:
    """The first k documents whose best passages do not almost equal that of a better one."""
    group_K = near.first(ranking.rows_K)
    firsts = best_rows(np.zeros(len(group_K), np.int64), group_K)[:k]
    return Ranking(ranking.rows_K[firsts], ranking.scores_K[firsts])


def append_deeper(before: Ranking, deeper: Ranking, documents: Callable[[np.ndarray], np.ndarray]) -> Ranking:
    """A list of documents, then the new ones of deeper lists: the order of the first ones does not depend on k."""
    document_K = documents(np.concatenate([before.rows_K, deeper.rows_K]))
    new_K = ~np.isin(document_K[len(before.rows_K) :], document_K[: len(before.rows_K)])
    return Ranking(*(np.concatenate([old, new[new_K]]) for old, new in zip(before, deeper, strict=True)))


def _mask(session: "Session", where: str | None) -> Mask | InputError:
    try:
        return None if where is None else session.where.rows(where)
    except InputError as error:
        return error


def rank_passages(
    session: "Session",
    questions: Sequence[tuple[Question, Depths]],
    masks: Mapping[str | None, Mask | InputError],
) -> list[Lists | Failure]:
    """The best passages of each question, by BM25, the model or both: as many as its depth, or fewer if a list ends.

    A fusion reads lists of the whole collection, which `rank_results` filters: ranks and lowest scores are those of
    the whole lists. Beyond DEEPEST the lists are filtered here.
    """
    filters = [
        None if question.by == "fusion" and depths.dense <= DEEPEST else question.where
        for question, depths in questions
    ]
    mask_of: dict[str | None, Mask] = {None: None}
    mask_of.update({where: mask for where, mask in masks.items() if not isinstance(mask, InputError)})
    tokens, failures = _question_tokens(session, questions)
    bm25_places = [
        place for place, (question, _) in enumerate(questions) if question.by != "dense" and place not in failures
    ]
    bm25: dict[int, Ranking] = {}
    pending: Future[list[Ranking]] | None = None
    if session.bm25 is not None and bm25_places:
        requests = [(questions[n][0].text, questions[n][1].bm25, mask_of[filters[n]]) for n in bm25_places]
        pending = session.bm25_thread.submit(session.bm25.top, requests)
    dense = dense_rankings(session, {n: (row, questions[n][1].dense, filters[n]) for n, row in tokens.items()}, mask_of)
    if pending is not None:
        try:
            bm25 = dict(zip(bm25_places, pending.result(), strict=True))
        except (InputError, JavaFailed) as error:
            failures |= dict.fromkeys(bm25_places, error)
    return [failures.get(place) or Lists(bm25.get(place), dense.get(place)) for place in range(len(questions))]


def _question_tokens(
    session: "Session", questions: Sequence[tuple[Question, Depths]]
) -> tuple[dict[int, np.ndarray], dict[int, Failure]]:
    """({place: token ids} of the questions to encode, {place: error} of those without a token)."""
    tokens: dict[int, np.ndarray] = {}
    failures: dict[int, Failure] = {}
    texts = {place: question.text for place, (question, _) in enumerate(questions) if question.by != "bm25"}
    if session.dense is None or not texts:
        return tokens, failures
    for (place, text), row in zip(texts.items(), session.dense.encoder.rows([*texts.values()]), strict=True):
        if row is None:
            failures[place] = InputError(f"question '{one_line(text)}': no token to search for")
        else:
            tokens[place] = row
    return tokens, failures


def dense_rankings(
    session: "Session",
    questions: Mapping[int, tuple[np.ndarray, int, str | None]],
    mask_of: Mapping[str | None, Mask],
) -> dict[int, Ranking]:
    """{place: ranking} of questions {place: (token ids, depth, condition)}.

    One call encodes all questions. Each depth and condition has its own search, because an approximate index searches
    more thoroughly for longer lists.
    """
    if session.dense is None or not questions:
        return {}
    tokens = [row for row, *_ in questions.values()]
    vectors = dict(zip(questions, session.dense.encoder.vectors(tokens, session.dense.together), strict=True))
    groups: defaultdict[tuple[int, str | None], list[int]] = defaultdict(list)
    for place, (_, depth, where) in questions.items():
        groups[depth, where].append(place)
    result: dict[int, Ranking] = {}
    for (depth, where), places in groups.items():
        rankings = session.dense.top(np.stack([vectors[n] for n in places]), depth, mask_of[where])
        result |= zip(places, rankings, strict=True)
    return result
