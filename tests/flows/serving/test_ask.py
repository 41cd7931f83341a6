"""Answers equal those of the whole ranking: within a filter, by document, alone or among other questions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from answering import make_store
from fused import fuse_lists
from searched import hits_of

from flows.serving import rankings
from flows.serving.ask import ask, check_question, different
from flows.serving.engine import By, newest_engine
from flows.serving.question import Question, Session
from flows.serving.rankings import Ranking
from flows.serving.session import open_session
from pipeline.bm25.searcher import Searcher
from pipeline.data.filter import Where
from pipeline.data.near_duplicates.groups import Groups
from pipeline.dense.exact_gpu import GpuVectors
from pipeline.errors import InputError
from pipeline.evaluate.fusion.fuse import Choice

WORDS = [f"word{n}" for n in range(12)]
DEPTH = 30
"""The depth of the lists that are fused."""
NONE = Groups(*np.zeros((2, 0), np.int64))
QUESTIONS = ["word1 word2", "word3", "word4 word5 word6 word7", "word0 word11", "word8 word8 absent", "absent"]


def vector(text: str) -> np.ndarray:
    return np.random.default_rng(sum(text.encode())).normal(size=4).astype(np.float32)


class Encoder:
    """Each question has its own random vector; one of white space has none."""

    encoder = SimpleNamespace(dimension=4)

    def rows(self, texts) -> list[np.ndarray | None]:
        return [vector(text) if text.isprintable() else None for text in texts]

    def vectors(self, rows, together) -> np.ndarray:
        return np.stack(rows)

    def is_steady(self) -> bool:
        return True


@pytest.fixture(scope="module")
def corpus() -> tuple[list[tuple[str, str, str, str]], np.ndarray]:
    """300 passages. A third of them are of one document, and the first question finds these first."""
    rng = np.random.default_rng(1)
    vectors_ND = rng.normal(size=(300, 4)).astype(np.float32)
    vectors_ND[150] = vectors_ND[7]  # equal scores
    document = [f"d{n // 3}" for n in range(100)] + ["large"] * 100 + [f"e{n}" for n in range(100)]
    vectors_ND[100:200] += 3 * vector(QUESTIONS[0])
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(300)]
    for n in range(100, 200):
        texts[n] = "word1 word2 " + texts[n]
    return [(f"p{n}", document[n], "", text) for n, text in enumerate(texts)], vectors_ND


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory) -> Iterator[Session]:
    passages, vectors_ND = corpus
    store = make_store(tmp_path_factory.mktemp("asking") / "store", passages, "word1", vectors_ND, depth=DEPTH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.dense.question_encoder.question_encoder", lambda *_: Encoder())
        engine = newest_engine(store, None)
        with open_session(engine, engine.ways(), often=True) as run:
            yield run


@pytest.fixture(scope="module")
def whole(run, corpus) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """{(question, dense or bm25): its whole ranking as (row, score)}, by score, then row."""
    _, vectors_ND = corpus
    lists: dict[tuple[str, str], list[tuple[int, float]]] = {}
    with Searcher(run.bm25.artifact) as searcher:
        for text in QUESTIONS:
            exact = vectors_ND.astype(np.float64) @ vector(text).astype(np.float64)
            scores = {"dense": [*enumerate(exact.astype(np.float32).tolist())]}
            scores["bm25"] = [(int(passage_id[1:]), score) for passage_id, score in hits_of(searcher, text, 300)]
            for way, rows in scores.items():
                lists[text, way] = sorted(rows, key=lambda one: (-one[1], one[0]))
    return lists


MASKS = {
    None: np.ones(300, bool),
    "few": np.arange(300) % 41 == 0,
    "most": np.arange(300) % 5 > 0,
    "none": np.zeros(300, bool),
}


@pytest.fixture(autouse=True)
def filters_by_name(monkeypatch) -> None:
    def rows(where: Where, expression: str) -> np.ndarray:
        if expression not in MASKS:
            raise InputError(f"where: no column in {expression!r}")
        return MASKS[expression]

    monkeypatch.setattr(Where, "rows", rows)


def test_a_server_on_a_gpu_gives_the_same_lists(run, monkeypatch) -> None:
    """Its products, on the CPU."""
    used = []

    class Counted(GpuVectors):
        def best(self, *arguments):
            used.append(len(arguments[0]))
            return super().best(*arguments)

    monkeypatch.setattr("pipeline.dense.question_encoder.question_encoder", lambda *_: Encoder())
    monkeypatch.setattr(rankings, "gpus", lambda: 1)
    monkeypatch.setattr(
        rankings, "copy_to_gpu", lambda index: Counted(index.vectors_ND, torch.from_numpy(index.vectors_ND + 0))
    )
    questions_QD = np.stack([vector(text) for text in QUESTIONS])
    assert rankings.open_dense(run.engine, 300, often=False).on_gpu is None
    for mask in (None, *MASKS.values()):
        theirs = rankings.open_dense(run.engine, 300, often=True).top(questions_QD, DEPTH, mask)
        np.testing.assert_equal(theirs, run.dense.top(questions_QD, DEPTH, mask))
    assert set(used) == {len(QUESTIONS)}
    monkeypatch.setattr(rankings, "copy_to_gpu", lambda index: None)  # they do not fit
    assert rankings.open_dense(run.engine, 300, often=True).on_gpu is None


def expected(corpus, whole, text: str, by: By, where: str | None, k: int) -> list[tuple[str, float]]:
    """(passage id, score) of the best passage of each document, from the whole rankings."""
    passages, _ = corpus

    def documents(ranking: Sequence[tuple[int, float]]) -> list[tuple[str, float]]:
        best: dict[str, tuple[str, float]] = {}
        for row, score in ranking:
            if MASKS[where][row]:
                best.setdefault(passages[row][1], (passages[row][0], score))
        return [*best.values()][:k]

    if by != "fusion":
        return documents(whole[text, by])
    depth, listed = DEPTH, dict[str, tuple[str, float]]()
    while True:  # a filter searches deeper when needed, and appends what it finds there
        for document, (passage, score) in fused(passages, whole, text, where, depth).items():
            listed.setdefault(document, (passage, score))
        if len(listed) >= k or where is None or depth >= len(passages):
            return [*listed.values()][:k]
        depth *= 4


def fused(passages, whole, text: str, where: str | None, depth: int) -> dict[str, tuple[str, float]]:
    """{document: its best passage in the fused lists that the mask allows, and its fused score}, best first."""
    lists = [{str(row): score for row, score in whole[text, way][:depth]} for way in ("bm25", "dense")]
    by_document: list[dict[str, float]] = [{}, {}]
    for scores, found in zip(by_document, lists, strict=True):
        for row, score in found.items():
            scores.setdefault(passages[int(row)][1], score)
    choice = Choice("reciprocal_rank", 0.9)
    rows = [(int(row), score) for row, score in fuse_lists(*lists, choice, 60)]
    best: dict[str, int] = {}
    for row, _ in sorted(rows, key=lambda one: (-one[1], one[0])):
        if MASKS[where][row]:
            best.setdefault(passages[row][1], row)
    kept = [(document, score) for document, score in fuse_lists(*by_document, choice, 60) if document in best]
    kept.sort(key=lambda one: (-one[1], best[one[0]]))
    return {document: (passages[best[document]][0], score) for document, score in kept}


EVERY = [
    Question(text, k, by, where)
    for text in QUESTIONS
    for by in ("dense", "bm25", "fusion")
    for where in MASKS
    for k in (1, 4, 25, 300)
]


@pytest.mark.parametrize("by", ["dense", "bm25", "fusion"])
@pytest.mark.parametrize("where", MASKS)
def test_answers_equal_those_of_the_whole_ranking_filtered_afterwards(by, where, run, corpus, whole) -> None:
    questions = [question for question in EVERY if question.by == by and question.where == where]
    for question, answers in zip(questions, ask(run, questions), strict=True):
        expected_answers = expected(corpus, whole, question.text, by, where, question.k)
        assert [answer.passage_id for answer in answers] == [passage_id for passage_id, _ in expected_answers], question
        assert [answer.score for answer in answers] == pytest.approx([score for _, score in expected_answers], rel=1e-6)
        assert [answer.rank for answer in answers] == [*range(1, len(expected_answers) + 1)]


def test_passages_of_a_rare_filter_are_found_beyond_the_deepest_lists(run, corpus, whole, monkeypatch) -> None:
    monkeypatch.setattr("flows.serving.ask.DEEPEST", 1)
    (few,) = ask(run, [Question(QUESTIONS[1], 8, "fusion", "few")])
    allowed = {(text, way): [one for one in rows if MASKS["few"][one[0]]] for (text, way), rows in whole.items()}
    assert len(few) == 7  # documents of the 8 passages
    found = fused(corpus[0], allowed, QUESTIONS[1], "few", 300)
    assert {a.doc_id: a.score for a in few} == pytest.approx({name: score for name, (_, score) in found.items()})


@pytest.mark.parametrize("where", ["few", "most"])
def test_a_filtered_fusion_is_the_fusion_filtered_for_any_number_of_hits(where, run) -> None:
    (every,) = ask(run, [Question(QUESTIONS[2], 300, "fusion")])
    kept = [(a.passage_id, a.score) for a in every if MASKS[where][int(a.passage_id[1:])]]
    answers_by_k = {k: ask(run, [Question(QUESTIONS[2], k, "fusion", where)])[0] for k in (1, 3, 8, 40, 300)}
    longest = [(a.passage_id, a.score) for a in answers_by_k[300]]
    assert len(kept) < len(longest)
    assert [one for one in longest if one in kept] == kept  # another passage of a document may be between them
    for k, answers in answers_by_k.items():
        assert [(a.passage_id, a.score) for a in answers] == longest[:k]


def test_a_document_of_many_passages_hides_no_other(run) -> None:
    for by in ("dense", "bm25"):
        (answers,) = ask(run, [Question(QUESTIONS[0], 10, by)])
        assert len(answers) == 10
        assert [answer.doc_id for answer in answers].count("large") == 1


def test_a_question_has_the_same_answers_alone_and_among_others(run) -> None:
    together = ask(run, EVERY)
    assert any(together)
    for question, answers in [*zip(EVERY, together, strict=True)][::7]:
        assert ask(run, [question]) == [answers]
    assert ask(run, EVERY[::-1]) == together[::-1]


def test_a_question_that_cannot_be_answered_does_not_change_the_others(run) -> None:
    questions = [("\x07", None), ("\x07\u200c", None), ("word1", "nope"), ("word1", None)]
    nothing, joiner, unknown, answers = ask(run, [Question(text, 2, "fusion", where) for text, where in questions])
    assert str(nothing) == r"question '\x07': no token to search for"
    assert str(joiner) == "question '\\x07\u200c': no token to search for"
    assert str(unknown) == "where: no column in 'nope'"
    assert answers == ask(run, [Question("word1", 2, "fusion")])[0]
    assert ask(run, []) == []


@pytest.mark.slow
def test_bm25_that_died_is_reported_once_and_started_again(run) -> None:
    before = ask(run, [Question("word3", 3, "bm25"), Question("word3", 3, "dense")])
    run.bm25.searcher._child.kill()
    failed, dense = ask(run, [Question("word3", 3, "bm25"), Question("word3", 3, "dense")])
    assert str(failed).startswith("BM25 failed in its Java process, killed by SIGKILL: ")
    assert dense == before[1]
    assert ask(run, [Question("word3", 3, "bm25")]) == before[:1]


def test_a_question_of_the_collection_is_shown_with_its_passage(run, corpus) -> None:
    (answers,) = ask(run, [Question(corpus[0][0][3], 300, "dense")])
    assert {answer.passage_id: answer.question for answer in answers}.get("p0", "word1") == "word1"
    assert {answer.question for answer in answers if answer.passage_id != "p0"} == {""}


def test_of_almost_equal_passages_the_best_one_is_shown(run, corpus) -> None:
    """Documents of one passage each: the answers are those of before without the passages that are now named."""
    question = Question(QUESTIONS[1], 20, "dense")
    (before,) = ask(run, [question])
    row = {answer.passage_id: int(answer.passage_id[1:]) for answer in before}
    same = [answer for answer in before if answer.doc_id.startswith("e")][:3]
    assert len(same) == 3
    rows = sorted({*(row[answer.passage_id] for answer in same), 299, 298})
    session = replace(run, near_duplicates=Groups(np.array(rows), np.full(5, rows[0])))
    (found,) = ask(session, [question._replace(k=18)])
    kept = [answer.passage_id for answer in before if answer not in same[1:]]
    assert [answer.passage_id for answer in found] == kept[:18]
    named = {answer.passage_id: (answer.almost_equal, answer.almost_equal_count) for answer in found}
    others = [f"p{n}" for n in rows if n != row[same[0].passage_id]]
    assert {passage: names for passage, names in named.items() if names != ([], 0)} == {same[0].passage_id: (others, 4)}


def test_a_document_whose_best_passage_almost_equals_a_better_one_is_not_shown() -> None:
    near = Groups(np.array([0, 1]), np.array([0, 0]))
    found = different(Ranking(np.array([1, 3, 0, 2]), np.array([4.0, 3.0, 2.0, 1.0])), 2, near)
    assert (found.rows_K.tolist(), found.scores_K.tolist()) == ([1, 3], [4.0, 3.0])
    found = different(Ranking(np.array([1, 0, 2]), np.array([4.0, 3.0, 2.0])), 3, near)
    assert found.rows_K.tolist() == [1, 2]


def test_only_almost_equal_passages_that_the_condition_allows_are_named(run, corpus) -> None:
    rows, masked = np.arange(100, 200), np.arange(300) % 2 == 0
    session = replace(run, near_duplicates=Groups(rows, np.full(100, 100)))
    question = Question(QUESTIONS[0], 1, "dense", "even")
    ((answer,),) = ask(session, [question], {"even": masked})
    assert (answer.almost_equal_count, len(answer.almost_equal)) == (49, 20)
    assert all(int(name[1:]) % 2 == 0 for name in answer.almost_equal)
    assert answer.passage_id not in answer.almost_equal


@pytest.mark.parametrize(
    ("question", "line"),
    [
        (Question(" \n", 1, "dense"), "the question is empty"),
        (Question("x", 0, "dense"), "k is 0; the minimum is 1 document"),
        (Question("x", 8_800_000, "dense"), "k is 8,800,000; the maximum is 1,000 documents"),
        (Question("x", 301, "dense"), "k is 301, but the collection has 300 passages"),
    ],
)
def test_invalid_questions_are_refused(question, line, run) -> None:
    with pytest.raises(InputError, match=line):
        check_question(run, question)


def test_a_question_is_cleaned(run) -> None:
    assert check_question(run, Question("\udcff x", 300, "bm25", "  ")) == Question("? x", 300, "bm25", None)
