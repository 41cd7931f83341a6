"""A judgement of a finished collection that names an unknown question is reported with its file and question."""

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
    def build(question: str) -> Path:
        passages = [("p1", "", "title", "text"), ("p2", "", "title", "other")]
        queries = [("q1", "train", "what"), ("q2", "dev", "which")]
        judged = [("train", "q1", "p1", 1), ("train", question, "p2", 1)]
        return write_collection(tmp_path / "collection", passages, queries, judged)

    return build


@pytest.mark.parametrize("question", ["nosuch", "Q1", "q1 ", "", "q\n1"])
@pytest.mark.parametrize("reader", READERS)
def test_an_unknown_question_is_reported(collection: Callable[[str], Path], reader: str, question: str) -> None:
    with pytest.raises(InputError) as raised:
        READERS[reader](collection(question))
    assert f"collection/qrels.parquet: names the question {question!r}, which queries.parquet does not have; " in str(
        raised.value
    )
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_known_question_is_accepted(collection: Callable[[str], Path], reader: str) -> None:
    assert READERS[reader](collection("q1")) is not None


@pytest.mark.parametrize("reader", ["read_qrels", "evaluate", "bm25", "mine"])
def test_the_questions_are_read_once(collection: Callable[[str], Path], reader: str, monkeypatch) -> None:
    read = []

    def counted(path: Path, *arguments: Any, **settings: Any) -> Any:
        read.append(path.name)
        return read_table(path, *arguments, **settings)

    monkeypatch.setattr("pipeline.data.collection.read_table", counted)
    READERS[reader](collection("q1"))
    assert sorted(read) == ["qrels.parquet", "queries.parquet"]


def test_a_question_of_another_split_is_reported(collection: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="names the question 'q2'"):
        read_qrels(collection("q2"), ["train"])


def test_pseudo_labels_of_an_unknown_question_are_reported(collection: Callable[[str], Path], tmp_path: Path) -> None:
    write_table(tmp_path / "qrels.parquet", schemas()["qrels"], [("train", "nosuch", "p1", 1)])
    with pytest.raises(InputError, match="names the question 'nosuch'"):
        read_judged(collection("q1"), "train", tmp_path / "qrels.parquet")


def test_a_table_of_judgements_is_read_without_its_collection(tmp_path: Path) -> None:
    write_table(tmp_path / "qrels.parquet", schemas()["qrels"], [("dev", "any", "p1", 1)])
    assert read_file(tmp_path / "qrels.parquet") == {"any": {"p1": 1}}
