"""The stored answers."""

import sqlite3
from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.generate import answer_store
from pipeline.generate.answer_store import FILE, AnswerStore, MeanTokens, request_key
from pipeline.language_model.chat_completion import Answer


def test_answers_stay_and_the_first_one_counts(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "new" / "folder") as store:
        store.add([("a", Answer("one\n\x00two", 1, 2)), ("b", Answer("", 3, 4))])
        store.add([("a", Answer("other", 9, 9))])
    with AnswerStore(tmp_path / "new" / "folder", writes=False) as store:
        assert store.get("a") == Answer("one\n\x00two", 1, 2)
        assert "b" in store
        assert store.get("c") is None
        assert store.means(["a", "b", "c"]) == MeanTokens(2.0, 3.0)
        assert store.means(["c"]) is None


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "absent", writes=False) as store:
        assert "a" not in store
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    for writes in (True, False):
        with pytest.raises(InputError, match=FILE) as raised, AnswerStore(tmp_path, writes=writes) as store:
            store.get("a")
        assert "\n" not in str(raised.value)


def test_a_key_depends_on_all_parts() -> None:
    assert len({request_key(*parts) for parts in (("a", 1), ("a", "1"), ("a1",), ("a", 1, None), ("a", [1]))}) == 5


def test_only_a_damaged_file_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who removes the file loses paid answers."""
    monkeypatch.setattr(answer_store, "SECONDS", 0.1)
    with AnswerStore(tmp_path) as store:
        store.add([("a", Answer("one", 1, 2))])
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InputError, match="locked; another process writes to it"), AnswerStore(tmp_path) as store:
        store.add([("b", Answer("two", 3, 4))])
    other.execute("ROLLBACK")
    with AnswerStore(tmp_path) as store:
        store._database.execute("PRAGMA max_page_count = 1")
        with pytest.raises(InputError, match="full; make room"):
            store.add([(str(n), Answer("x" * 5000, 3, 4)) for n in range(9)])
        assert "0" not in store
    other.execute("DROP TABLE answers")
    other.execute("CREATE TABLE answers (x TEXT)")
    other.close()
    with pytest.raises(InputError, match="move it away"), AnswerStore(tmp_path) as store:
        store.get("a")
