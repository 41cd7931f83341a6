"""Questions put to an opened run, many at a time."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flows.serving.answers import Answers, described
from flows.serving.question import LONGEST, Question
from flows.serving.rankings import WIDER, Failed, Mask, Ranking, join
from pipeline.bm25.bm25 import Ended
from pipeline.errors import InputError
from pipeline.evaluate.fusion import Choice
from pipeline.formatting import counted
from pipeline.notices import one_line

if TYPE_CHECKING:
    from flows.serving.question import Opened

EXTRA = 5
"""Passages looked at first for each document wanted: several of them may be of one document."""
MOST = 1000
"""Documents of an answer."""
DEEPEST = 100_000
"""Passages of lists that are joined and then filtered, a second's work of Lucene's. Where these leave too few, lists
are filtered and then joined."""


class Depths(NamedTuple):
    """Passages of a question's lists."""

    dense: int
    bm25: int


def checked(run: "Opened", question: Question) -> Question:
    """The question as it can be asked. Raises InputError."""
    text = question.text.encode(errors="replace").decode()  # a terminal's bytes may be no UTF-8
    where = (question.where or "").strip() or None
    if not text.strip():
        raise InputError("the question is empty")
    if len(text) > LONGEST:
        raise InputError(f"the question has {len(text):,} characters; at most {LONGEST:,} are taken")
    if question.k < 1:
        raise InputError(f"k is {question.k:,}; at least 1 document must be asked for")
    if question.k > MOST:
        raise InputError(f"k is {question.k:,}; at most {MOST:,} documents are shown")
    if question.k > run.passages.count:
        raise InputError(f"k is {question.k:,}, but the collection holds {counted(run.passages.count, 'passages')}")
    if question.by not in run.ways:
        why = run.problems.get(question.by, f"the run of {run.engine.run.name} cannot be asked so")
        raise InputError(f"by {question.by}: {why}")
    return question._replace(text=text, where=where)


def notices(run: "Opened", question: Question) -> list[str]:
    """What of a `checked` question is not read, a line each."""
    cut = run.dense.encoder.cut(question.text) if run.dense is not None and question.by != "bm25" else ""
    return [cut] if cut else []


def ask(
    run: "Opened", questions: Sequence[Question], known: Mapping[str | None, Mask] = MappingProxyType({})
) -> list[Answers]:
    """The best k documents of each question (`checked` ones), each with its best passage.

    What a question is answered does not hang on those that it is asked together with.
    `known`: masks of filters that were evaluated before.
    """
    wheres = {question.where for question in questions}
    masks = {where: known[where] if where in known else _mask(run, where) for where in wheres}
    found: dict[int, Ranking | Failed] = {}
    depths, whole = {}, dict[int, Ranking]()
    for place, question in enumerate(questions):
        mask = masks[question.where]
        if isinstance(mask, InputError):
            found[place] = mask
        else:
            depths[place] = first_depths(run, question)
    while depths:  # until each list holds k documents, or has ended
        rankings = rank(run, [(questions[place], wanted) for place, wanted in depths.items()], masks)
        deeper = {}
        for (place, wanted), ranking in zip(depths.items(), rankings, strict=True):
            question, found[place] = questions[place], ranking
            if isinstance(ranking, Ranking):
                if question.by == "fusion" and place in whole:
                    ranking = appended(whole[place], ranking)
                whole[place] = ranking
                firsts = best_passages(ranking.rows_K, question.k, run.passages.documents)
                found[place] = Ranking(ranking.rows_K[firsts], ranking.scores_K[firsts])
                if len(firsts) < question.k and goes_on(run, question, wanted, ranking):
                    deeper[place] = Depths(*(WIDER * depth for depth in wanted))
        depths = deeper
    return described(run, questions, [found[place] for place in range(len(questions))])


def first_depths(run: "Opened", question: Question) -> Depths:
    """Passages looked at first. For fusion the depths that its weight was chosen on."""
    recipe = run.engine.recipe
    if question.by == "fusion":
        return Depths(recipe["search"]["depth"], recipe["bm25"]["depth"])
    return Depths(EXTRA * question.k, EXTRA * question.k)


def goes_on(run: "Opened", question: Question, depths: Depths, ranking: Ranking) -> bool:
    """Whether deeper lists would hold more. A fusion goes beyond its lists for the sake of a filter alone."""
    if question.by == "fusion":
        return question.where is not None and depths.dense < min(run.passages.count, DEEPEST + 1)
    return len(ranking.rows_K) >= depths.dense


def appended(before: Ranking, deeper: Ranking) -> Ranking:
    """A fused list, and what deeper ones hold beyond it: how many are asked for changes the order of none."""
    new_K = ~np.isin(deeper.rows_K, before.rows_K)
    return Ranking(*(np.concatenate([old, new[new_K]]) for old, new in zip(before, deeper, strict=True)))


def _mask(run: "Opened", where: str | None) -> Mask | InputError:
    try:
        return None if where is None else run.where.rows(where)
    except InputError as error:
        return error


def rank(
    run: "Opened", asked: Sequence[tuple[Question, Depths]], masks: Mapping[str | None, Any]
) -> list[Ranking | Failed]:
    """The best passages of each question, as many as its depth, fewer where its list ends.

    For fusion two lists of the whole collection are joined, and then filtered: ranks and least scores are theirs.
    Beyond DEEPEST it is those of the filtered lists.
    """
    recipe, metrics = run.engine.recipe, run.engine.metrics
    within = [
        None if question.by == "fusion" and depths.dense <= DEEPEST else question.where for question, depths in asked
    ]
    masks = {None: None, **masks}
    rows, failed = _rows(run, asked)
    places = [n for n, (question, _) in enumerate(asked) if question.by != "dense" and n not in failed]
    lexical: dict[int, Ranking] = {}
    waiting: Future[list[Ranking]] | None = None
    if run.lexical is not None and places:
        texts = [(asked[n][0].text, asked[n][1].bm25, masks[within[n]]) for n in places]
        waiting = run.beside.submit(run.lexical.top, texts)
    dense = dense_lists(run, {n: (row, asked[n][1].dense, within[n]) for n, row in rows.items()}, masks)
    if waiting is not None:
        try:
            lexical = dict(zip(places, waiting.result(), strict=True))
        except (InputError, Ended) as error:
            failed |= dict.fromkeys(places, error)
    joined: dict[int, Ranking] = {}
    both = [n for n in rows if n in lexical]
    if both:
        choice = Choice(metrics["fusion"]["method"], metrics["fusion"]["weight"])
        k = recipe["evaluate"]["reciprocal_k"]
        lists = join([lexical[n] for n in both], [dense[n] for n in both], choice, k)
        joined = {n: filtered(one, masks[asked[n][0].where]) for n, one in zip(both, lists, strict=True)}
    found = {**dense, **lexical, **joined, **failed}  # what was made of a question's lists stands before them
    return [found[place] for place in range(len(asked))]


def filtered(ranking: Ranking, mask: Mask) -> Ranking:
    if mask is None:
        return ranking
    kept_K = mask[ranking.rows_K]
    return Ranking(ranking.rows_K[kept_K], ranking.scores_K[kept_K])


def _rows(run: "Opened", asked: Sequence[tuple[Question, Depths]]) -> tuple[dict[int, np.ndarray], dict[int, Failed]]:
    """(ids of each question that is encoded, by its place; errors of those without a token)."""
    rows: dict[int, np.ndarray] = {}
    failed: dict[int, Failed] = {}
    texts = {place: question.text for place, (question, _) in enumerate(asked) if question.by != "bm25"}
    if run.dense is None or not texts:
        return rows, failed
    for (place, text), row in zip(texts.items(), run.dense.encoder.rows([*texts.values()]), strict=True):
        if row is None:
            failed[place] = InputError(f"question '{one_line(text)}': nothing left to search for")
        else:
            rows[place] = row
    return rows, failed


def dense_lists(
    run: "Opened", wanted: Mapping[int, tuple[np.ndarray, int, str | None]], masks: Mapping[str | None, Any]
) -> dict[int, Ranking]:
    """The list of each (ids, depth, filter), by its place: encoded in one call, searched in one a filter and depth.

    Each depth by itself, because an approximate index looks harder for longer lists.
    """
    if run.dense is None or not wanted:
        return {}
    rows = [row for row, *_ in wanted.values()]
    vectors = dict(zip(wanted, run.dense.encoder.vectors(rows, run.dense.together), strict=True))
    alike: defaultdict[tuple[int, str | None], list[int]] = defaultdict(list)
    for place, (_, depth, where) in wanted.items():
        alike[depth, where].append(place)
    found: dict[int, Ranking] = {}
    for (depth, where), places in alike.items():
        rankings = run.dense.top(np.stack([vectors[n] for n in places]), depth, masks[where])
        found |= zip(places, rankings, strict=True)
    return found


def best_passages(rows_K: np.ndarray, k: int, documents: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Places in a ranking of the best passage of each of its first k documents, best first."""
    looked_at = EXTRA * k
    while True:
        firsts = np.sort(np.unique(documents(rows_K[:looked_at]), return_index=True)[1])
        if len(firsts) >= k or looked_at >= len(rows_K):
            return firsts[:k]
        looked_at *= WIDER
