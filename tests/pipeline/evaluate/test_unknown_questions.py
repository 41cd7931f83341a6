"""Judgements of a finished collection that name a question it does not have: a line with the file and the question."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from searched import write_collection

from flows.serving.answers import questions_by_passage
from pipeline.bm25.first_stage import queries_to_search
from pipeline.data.collection import read_qrels, schemas, train_positives, write_table
from pipeline.data.judged import read_judged
from pipeline.data.qrels import read_qrels as read_file
from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.evaluate.questions import read_split_questions
from pipeline.negatives.pseudo_labels import unjudged

READERS: dict[str, Callable[[Path], object]] = {
    "read_qrels": read_qrels,
    "evaluate": lambda collection: read_split_questions(collection, "train", 1),
    "bm25": queries_to_search,
    "mine": train_positives,
    "training pools": lambda collection: read_judged(collection, "train"),
    "pseudo": unjudged,
    "search": questions_by_passage,
}


@pytest.fixture
def collection(tmp_path: Path) -> Callable[[str], Path]:
    def written(question: str) -> Path:
        passages = [("p1", "", "title", "text"), ("p2", "", "title", "other")]
        queries = [("q1", "train", "what"), ("q2", "dev", "which")]
        judged = [("train", "q1", "p1", 1), ("train", question, "p2", 1)]
        return write_collection(tmp_path / "collection", passages, queries, judged)

    return written


@pytest.mark.parametrize("question", ["nosuch", "Q1", "q1 ", "", "q\n1"])
@pytest.mark.parametrize("reader", READERS)
def test_an_unknown_question(collection: Callable[[str], Path], reader: str, question: str) -> None:
    with pytest.raises(InputError) as told:
        READERS[reader](collection(question))
    assert f"collection/qrels.parquet: names the question {question!r}, which queries.parquet does not have; " in str(
        told.value
    )
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_known_question(collection: Callable[[str], Path], reader: str) -> None:
    assert READERS[reader](collection("q1")) is not None


@pytest.mark.parametrize("reader", ["read_qrels", "evaluate", "bm25", "mine"])
def test_the_questions_are_read_once(collection: Callable[[str], Path], reader: str, monkeypatch) -> None:
    read = []

    def counted(path: Path, *given: Any, **how: Any) -> Any:
        read.append(path.name)
        return read_table(path, *given, **how)

    monkeypatch.setattr("pipeline.data.collection.read_table", counted)
    READERS[reader](collection("q1"))
    assert sorted(read) == ["qrels.parquet", "queries.parquet"]


def test_a_question_of_another_split(collection: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="names the question 'q2'"):
        read_qrels(collection("q2"), ["train"])


def test_pseudo_labels_of_an_unknown_question(collection: Callable[[str], Path], tmp_path: Path) -> None:
    write_table(tmp_path / "qrels.parquet", schemas()["qrels"], [("train", "nosuch", "p1", 1)])
    with pytest.raises(InputError, match="names the question 'nosuch'"):
        read_judged(collection("q1"), "train", tmp_path / "qrels.parquet")


def test_a_table_of_judgements_may_lie_alone(tmp_path: Path) -> None:
    write_table(tmp_path / "qrels.parquet", schemas()["qrels"], [("dev", "any", "p1", 1)])
    assert read_file(tmp_path / "qrels.parquet") == {"any": {"p1": 1}}
