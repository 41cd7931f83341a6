"""A folder of judgements that was edited, cut off or lost in part: no judgement is lost, and errors are one line."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from judged import judge, settings, start

from flows.judging.folder import JudgingFolder
from flows.judging.judging import Judging
from flows.judging.questions import WaitingQuestion, read_questions
from flows.serving.line_log import LineLog
from pipeline.data.qrels import read_qrels
from pipeline.errors import InputError

QUESTIONS = ["one", "two"]
GRADED = {"q1": {"p0": 3, "p1": 0, "p2": 0, "p3": 0}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One question is judged, of another one a passage."""
    with ExitStack() as running:
        judging = start(running, tmp_path / "judged", QUESTIONS)
        judge(judging, {"p0": 3})
        judging.grade("q2", "p0", 2)
    return tmp_path / "judged"


def continued(folder: Path) -> list[int | None]:
    """Grades of the open question after a new start."""
    with ExitStack() as running:
        return [one["grade"] for one in start(running, folder, QUESTIONS).state()["passages"]]


def edit(folder: Path, change: Callable[[str], str]) -> Path:
    record = folder / "judging/record.jsonl"
    record.write_text(change(record.read_text()), newline="")
    return record


def test_an_editor_that_ends_the_last_line_in_another_way_loses_nothing(folder: Path) -> None:
    edit(folder, lambda text: text.rstrip("\n"))
    assert continued(folder) == [2, None, None, None]
    with ExitStack() as running:
        start(running, folder, QUESTIONS).grade("q2", "p1", 1)
    assert continued(folder) == [2, 1, None, None]
    edit(folder, lambda text: text.replace("\n", "\r\n"))
    assert continued(folder) == [2, 1, None, None]


def test_a_line_that_breaks_off_is_removed(folder: Path) -> None:
    edit(folder, lambda text: text[:-20])
    assert continued(folder) == [None] * 4
    assert read_qrels(folder / "qrels/test.tsv") == GRADED


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda text: text.replace("\n", "\r"), "record.jsonl: its lines end with CR only; save it with LF"),
        (lambda text: "", "record.jsonl: is missing or empty, but there are judgements; restore it"),
        (lambda text: "hello\n", "record.jsonl:1: invalid JSON"),
        (lambda text: text.replace('Z"', '"', 1), "record.jsonl:1: time: "),
        (lambda text: text.replace('"good":[', '"better":['), "record.jsonl: question 'q1' has no ranking of good"),
        (lambda text: text + text.splitlines()[0] + "\n", "record.jsonl:6: question 'q1' appears twice"),
        (lambda text: '{"entry": "x"}\n', "record.jsonl:1: entry: "),
    ],
)
def test_a_damaged_record_is_one_line_and_stays(folder: Path, change: Callable[[str], str], what: str) -> None:
    record = edit(folder, change)
    before = record.read_bytes()
    with pytest.raises(InputError) as raised:
        continued(folder)
    assert what in str(raised.value)
    assert "\n" not in str(raised.value)
    assert record.read_bytes() == before
    assert read_qrels(folder / "qrels/test.tsv") == GRADED


def test_a_record_in_utf_16_is_not_continued_in_utf_8(folder: Path) -> None:
    record = folder / "judging/record.jsonl"
    record.write_bytes(record.read_text().encode("utf-16"))
    before = record.read_bytes()
    with pytest.raises(InputError, match="is not UTF-8; save it as UTF-8"):
        continued(folder)
    assert record.read_bytes() == before


def test_a_missing_record_does_not_start_anew(folder: Path) -> None:
    (folder / "judging/record.jsonl").unlink()
    with pytest.raises(InputError, match="is missing or empty, but there are judgements"):
        continued(folder)
    assert read_qrels(folder / "qrels/test.tsv") == GRADED


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, "no"])
def test_damaged_settings_are_one_line(folder: Path, content: str) -> None:
    (folder / "judging/settings.json").write_text(content)
    with pytest.raises(InputError, match=r"settings\.json: holds no settings; restore it from a copy"):
        continued(folder)


def test_judgements_of_another_collection_say_which_option_to_repeat(folder: Path) -> None:
    other = settings().__class__(**{**vars(settings()), "collection": "other"})
    with pytest.raises(InputError, match="was started with another collection; repeat RUN, or choose"):
        JudgingFolder(folder).check(other)


def test_a_disk_that_is_full_is_one_line_and_the_judgement_can_be_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(28, os.strerror(28))

    def fail(*arguments: object) -> None:
        raise full

    with ExitStack() as running:
        judging = start(running, folder, QUESTIONS)
        with monkeypatch.context() as disk:
            disk.setattr(LineLog, "append", fail)
            with pytest.raises(InputError, match=r"judged: no space left on device; not saved: solve this"):
                judging.grade("q2", "p1", 1)
        assert [one["grade"] for one in judging.state()["passages"]] == [2, None, None, None]
        with monkeypatch.context() as disk:
            disk.setattr("flows.judging.folder.write_file", fail)
            with pytest.raises(InputError, match=r"no space left on device; all judgements are saved; the files"):
                judging.grade("q2", None, 0)
        judging.undo(), judging.grade("q2", None, 0)
    assert read_qrels(folder / "qrels/test.tsv")["q2"] == {"p0": 2, "p1": 0, "p2": 0, "p3": 0}


def test_a_typed_question_can_be_repeated_after_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    with ExitStack() as running:
        judging = start(running, folder, QUESTIONS)
        judging.grade("q2", None, 0)
        assert judging.state()["question"] is None
        with monkeypatch.context() as disk:
            disk.setattr(LineLog, "append", fail)
            with pytest.raises(InputError, match="no space left on device; not saved"):
                judging.ask("one more")
        assert judging.ask("one more")["question"]["text"] == "one more"


def test_a_question_that_no_system_can_answer_does_not_stop_the_others(folder: Path) -> None:
    """Such as `???` of a search log."""
    with ExitStack() as running:
        first = start(running, folder, QUESTIONS)

        def pool(query_id: str, text: str):
            if text.startswith("?"):
                raise InputError("the question has no words")
            return first._pool(query_id, text)

        wanted = [
            WaitingQuestion("???"),
            *map(WaitingQuestion, QUESTIONS),
            WaitingQuestion("?!"),
            WaitingQuestion("three"),
        ]
        judging = Judging(first._folder, first._settings, first._log, wanted, pool)
        judging.grade("q2", None, 0)
        assert judging.state()["question"]["text"] == "three"
        assert judging.left_out == [
            "question '???': the question has no words",
            "question '?!': the question has no words",
        ]
        judge(judging, {})
        with pytest.raises(InputError, match=r"question '\?\?': the question has no words"):
            judging.ask("??")
        assert judging.ask("four")["question"]["text"] == "four"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (json.dumps({"text": "\ud800"}), "holds half of a surrogate pair at character 1; remove it"),
        ("one\rtwo", "its lines end with CR only"),
    ],
)
def test_questions_that_no_file_can_hold_are_refused(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "questions.txt").write_text(content, newline="")
    with pytest.raises(InputError, match=what):
        read_questions(tmp_path / "questions.txt")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("q.txt", "\n  \n", "q.txt: has no question"),
        ("q.jsonl", "what?\n", "q.jsonl:1: "),
        ("q.tsv", "1\twhat?\n", "q.tsv: a table; one question per line is expected"),
        ("q.csv", "question\nwhat?\n", "q.csv: a table"),
    ],
)
def test_a_file_of_another_kind_is_no_list_of_questions(tmp_path: Path, name: str, content: str, what: str) -> None:
    """A language model would judge each of its lines."""
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=what):
        read_questions(tmp_path / name)
