"""A search returns documents that are cut into passages once each, by their best passage."""

import pytest
from answering import make_store
from long_documents import cut_rows

from flows.serving.ask import ask
from flows.serving.engine import newest_engine
from flows.serving.question import Question
from flows.serving.session import open_session

DOCUMENTS = {
    "a": ["sorted lists merge", "nothing of it"],
    "b": ["a list", "merge merge merge sorted lists", "lists"],
    "c": ["branches of trees", "merge"],
}


@pytest.mark.parametrize("often", [False, True])
def test_each_document_is_found_once_by_its_best_passage(often: bool, tmp_path) -> None:
    store = make_store(tmp_path / "store", cut_rows(DOCUMENTS), "merge sorted lists")
    engine = newest_engine(store, None)
    with open_session(engine, often=often) as session:
        [answers] = ask(session, [Question("merge sorted lists", 3, "bm25")])
    assert [answer.doc_id for answer in answers] == ["b", "a", "c"]
    assert [answer.passage_id for answer in answers] == ["b#1", "a#0", "c#1"]
    assert [answer.rank for answer in answers] == [1, 2, 3]
    assert {answer.doc_id: answer.question for answer in answers} == {"a": "merge sorted lists", "b": "", "c": ""}


@pytest.mark.parametrize("often", [False, True])
def test_results_are_the_documents_of_judgements_also_if_they_are_parts_of_larger_ones(often: bool, tmp_path) -> None:
    """As with `document_key`, `document_column` and DPR's titles: `doc_id` keeps rows of one source together."""
    rows = [(passage, "book", *rest) for passage, _, *rest in cut_rows(DOCUMENTS)]
    store = make_store(tmp_path / "store", rows, "merge sorted lists")
    with open_session(newest_engine(store, None), often=often) as session:
        [answers] = ask(session, [Question("merge sorted lists", 3, "bm25")])
    assert [answer.doc_id for answer in answers] == ["b", "a", "c"]
    assert [answer.question for answer in answers] == ["", "merge sorted lists", ""]
