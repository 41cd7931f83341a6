"""A person's judgements: what is shown, saved, undone and resumed, and the collection that they become."""

import json
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from judged import GOOD_BAD, judge, settings, start
from typer.testing import CliRunner

from artifacts.errors import StoreError
from flows.cli.main import app
from flows.judging.comparison import Rules, check_measure, outcome
from flows.judging.folder import JudgingFolder
from flows.judging.questions import read_questions
from flows.judging.record import Undone, minutes, read_record
from pipeline.data.qrels import read_qrels
from pipeline.data.readers import beir
from pipeline.errors import InputError
from pipeline.runtime.work import silent

LABELS = {"good": "Good", "bad": "Bad"}


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "judged"


def test_the_page_receives_nothing_of_the_systems(running, folder) -> None:
    judging = start(running, folder, ["one"])
    shown = json.dumps([judging.state(), judging.grade("q1", "p0", 2)])
    assert not any(word in shown for word in ("good", "bad", "rank", "score", "system"))
    assert [one["passage_id"] for one in judging.state()["passages"]] == ["p0", "p1", "p2", "p3"]


def test_each_key_press_is_saved_and_the_same_command_resumes(running, folder) -> None:
    with ExitStack() as first:
        judging = start(first, folder, ["one", "two"])
        judging.grade("q1", "p1", 3)
        judging.note("q1", "p1", "a note")
        before = judging.state()
    state = start(running, folder, ["one", "two"]).state()
    assert state == before
    assert [(one["grade"], one["note"]) for one in state["passages"]] == [
        (None, ""),
        (3, "a note"),
        (None, ""),
        (None, ""),
    ]
    assert (state["number"], state["total"]) == (1, 2)


def test_an_undo_takes_back_one_key_press_also_of_the_question_before(running, folder) -> None:
    judging = start(running, folder, ["one", "two"])
    judging.grade("q1", "p0", 1)
    judging.grade("q1", None, 0)
    assert judging.state()["question"]["query_id"] == "q2"
    state = judging.undo()
    assert (state["question"]["query_id"], state["number"]) == ("q1", 1)
    assert [one["grade"] for one in state["passages"]] == [1, None, None, None]
    judging.grade("q1", "p0", 2)
    assert [one["grade"] for one in judging.undo()["passages"]] == [1, None, None, None]
    state = judging.undo()
    assert ([one["grade"] for one in state["passages"]], state["can_undo"]) == ([None] * 4, False)
    assert judging.undo() == state
    assert sum(isinstance(line, Undone) for line in read_record(folder / "judging/record.jsonl")) == 3


def test_a_skipped_question_does_not_count_and_can_be_undone(running, folder) -> None:
    judging = start(running, folder, ["one", "two"])
    state = judging.skip("q1")
    assert (state["question"]["query_id"], state["skipped"]) == ("q2", 1)
    judge(judging, {"p0": 3})
    assert judging.comparison().skipped == 1
    assert [*read_qrels(folder / "qrels/test.tsv")] == ["q2"]
    judging.undo(), judging.undo(), judging.undo()
    assert judging.state()["question"]["query_id"] == "q1"


def test_the_folder_is_a_collection_of_the_completely_judged_questions(running, folder) -> None:
    judging = start(running, folder, ["one", "two", "three"])
    assert not (folder / "qrels/test.tsv").exists()
    judge(judging, {"p0": 3})
    judging.grade("q2", "p0", 3)
    assert read_qrels(folder / "qrels/test.tsv") == {"q1": {"p0": 3, "p1": 0, "p2": 0, "p3": 0}}
    config = beir.BeirConfig(
        reader="beir", folder=folder, document_key="", metadata=[], passage_words=None, passage_overlap=0
    )
    assert beir.missing(config) == []
    source = beir.read(config, silent)
    assert [(passage.passage_id, passage.text) for _, passage in source.passages()][1] == ("p1", "text of passage 1")
    assert [(query.query_id, query.split, query.text) for _, query in source.queries()] == [("q1", "test", "one")]
    assert source.counts["unnamed_files"] == source.counts["unjudged_queries"] == 0
    judging.undo(), judging.undo()
    assert not (folder / "qrels/test.tsv").exists()


def test_evaluate_reads_the_judgements_and_gives_the_same_figures(running, folder) -> None:
    judging = start(running, folder, [f"question {n}" for n in range(12)])
    for n in range(11):
        judge(judging, {"p0": 3} if n % 3 else {"p3": 1, "p0": 2, "p1": 1})
    runs = [str(folder / f"judging/runs/{name}.trec") for name in ("good", "bad")]
    result = CliRunner().invoke(app, ["evaluate", *runs, "--qrels", str(folder / "qrels/test.tsv"), "--json"])
    assert result.exit_code == 0, result.output
    evaluated, own = json.loads(result.stdout), judging.comparison().as_json()
    assert evaluated["questions"] == own["questions"] == 11
    assert evaluated["systems"][runs[0]]["nDCG@10"] == own["systems"]["good"]["nDCG@10"]
    difference = evaluated["differences"][0]["measures"]["nDCG@10"]
    mirrored = own["differences"]["good - bad"]["nDCG@10"]
    assert (difference["mean"], difference["low"], difference["p"]) == (
        -mirrored["mean"],
        -mirrored["high"],
        mirrored["p"],
    )
    assert json.loads((folder / "judging/comparison.json").read_text())["questions"] == 11


def test_the_comparison_ends_when_the_difference_is_significant(running, folder) -> None:
    judging = start(running, folder, [f"question {n}" for n in range(30)], rules=Rules("nDCG@10", 1, 50, 42))
    states = [judge(judging, {"p0": 3}) for _ in range(20)]
    assert [state["decided"] for state in states] == [False] * 19 + [True]
    assert (states[9]["looked_at"], states[9]["next_look"], states[8]["looked_at"]) == (10, 20, None)
    assert outcome(judging.comparison(), LABELS) == "Good is better than Bad: significant after 20 questions."


def test_without_a_significant_difference_the_number_of_further_questions_is_estimated(running, folder) -> None:
    judging = start(running, folder, [f"question {n}" for n in range(30)], rules=Rules("nDCG@10", 1, 50, 42))
    assert outcome(judging.comparison(), LABELS).startswith("No test yet: the first one is after 10 questions")
    for n in range(20):
        state = judge(judging, {"p0": 3} if n % 5 < 3 else {"p3": 3})
    assert (state["decided"], state["looked_at"]) == (False, 20)
    assert state["needed"] > 50
    assert f"about {state['needed'] - 20} more may show one" in outcome(judging.comparison(), LABELS)


def test_questions_without_a_relevant_passage_do_not_count(running, folder) -> None:
    judging = start(running, folder, ["one", "two"])
    judge(judging, {})
    judge(judging, {"p0": 1})
    found = judging.comparison()
    assert (found.questions, found.questions_without_relevant) == (1, 1)


def test_a_typed_question_waits_for_the_others_and_appears_once(running, folder) -> None:
    judging = start(running, folder, [])
    assert judging.state()["question"] is None
    assert judging.ask(" how  is it\n done ")["question"] == {"query_id": "q1", "text": "how is it done"}
    assert judging.ask("second")["total"] == 2
    for again in ("How is it done", "SECOND"):
        with pytest.raises(InputError, match="there already"):
            judging.ask(again)
    with pytest.raises(InputError, match="empty"):
        judging.ask(" ")


def test_what_does_not_belong_to_the_open_question_is_refused(running, folder) -> None:
    judging = start(running, folder, ["one", "two"])
    judge(judging, {"p0": 1})
    for wrong in (
        lambda: judging.grade("q1", "p0", 1),
        lambda: judging.skip("q1"),
        lambda: judging.note("q1", "p0", ""),
    ):
        with pytest.raises(InputError, match="no longer open"):
            wrong()
    for wrong in (lambda: judging.grade("q2", "p9", 1), lambda: judging.note("q2", "p9", "x")):
        with pytest.raises(InputError, match="not among"):
            wrong()
    with pytest.raises(InputError, match="too long"):
        judging.note("q2", "p0", "x" * 2001)


def test_a_folder_with_other_settings_or_other_content_is_refused(running, folder, tmp_path) -> None:
    start(running, folder, ["one"])
    place = JudgingFolder(folder)
    with pytest.raises(InputError, match="other systems; repeat RUN or --systems"):
        place.check(settings({**GOOD_BAD, "third": []}))
    with pytest.raises(InputError, match="planned 10; repeat --questions-planned"):
        place.check(settings(rules=Rules("nDCG@10", 1, 20, 42)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    for path in (tmp_path / "other", tmp_path / "other/file"):
        with pytest.raises(InputError, match="holds no judgements"):
            JudgingFolder(path).check(settings())
    place.settings.write_text("{")
    with pytest.raises(InputError, match=r"settings\.json: holds no settings"):
        place.check(settings())


def hold(root: Path, held, done) -> None:
    with JudgingFolder(root).held():
        held.set()
        done.wait(60)


def test_two_processes_never_judge_in_one_folder(folder) -> None:
    context = multiprocessing.get_context("fork")
    held, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(folder, held, done))
    other.start()
    assert held.wait(60)
    with pytest.raises(InputError, match="another process judges"), JudgingFolder(folder).held():
        pass
    done.set()
    other.join(60)


@pytest.mark.parametrize("end", [b'{"entry":"undo"', b'{"entry":"grades","query_id":"q1","grades":{"p0":3}'])
def test_a_line_that_a_failing_machine_cut_is_dropped(running, folder, end: bytes) -> None:
    record = folder / "judging/record.jsonl"
    with ExitStack() as first:
        start(first, folder, ["one"]).grade("q1", "p1", 2)
    whole = record.read_bytes()
    record.write_bytes(whole + end)
    judging = start(running, folder, ["one"])
    assert [one["grade"] for one in judging.state()["passages"]] == [None, 2, None, None]
    assert record.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("x", "invalid JSON"),
        ("[]", "object expected"),
        ('{"entry": "other"}', "entry"),
        ('{"entry": "grades", "query_id": "q1", "grades": {"p0": 4}}', r"grades\.p0"),
        ('{"entry": "grades", "query_id": "q7", "grades": {"p0": 1}}', "'q7' was not asked"),
        ('{"entry": "note", "query_id": "q1", "passage_id": "p9", "text": ""}', "'p9' is not among"),
    ],
)
def test_a_damaged_record_is_refused_with_its_line(running, folder, line, what) -> None:
    with ExitStack() as first:
        start(first, folder, ["one"])
    with (folder / "judging/record.jsonl").open("a") as record:
        record.write(line + "\n")
    with pytest.raises(InputError, match=rf"record\.jsonl:2: .*{what}"):
        start(running, folder, ["one"])


def test_pauses_are_no_work(running, folder) -> None:
    with ExitStack() as first:
        judging = start(first, folder, ["one"])
        judging.grade("q1", "p0", 1)
        judging.grade("q1", "p1", 1)
    lines = read_record(folder / "judging/record.jsonl")
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z", "2026-01-01T09:00:00Z"]
    moved = [
        type(line).model_validate({**line.model_dump(), "time": time}) for line, time in zip(lines, times, strict=True)
    ]
    assert minutes(moved) == 0.5


def test_questions_are_lines_or_beirs(tmp_path) -> None:
    path = tmp_path / "questions"
    path.write_text("one\n\n  two words \nONE\n")
    assert [*read_questions(path)] == [("one", ""), ("two words", "")]
    path.write_text('{"_id": "a", "text": "one"}\n{"text": "two"}\n')
    assert [*read_questions(path)] == [("one", "a"), ("two", "")]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", ": empty file"),
        (b"a\n\xff\n", ":2: invalid UTF-8"),
        (b"a\n" + 10_001 * b"x", ":2: the question is too long"),
        (b'{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n', ":2: query 'a' is already at"),
        (b'{"_id": "a"}\n', ":1: no text in field 'text'"),
        (b'{"_id": "a", "text": " "}\n', ":1: the question is empty"),
        (b'{"_id": "a\\tb", "text": "x"}\n', ":1: query id"),
        (b'{"_id": "a", \n', ":1: invalid JSON"),
    ],
)
def test_a_file_of_questions_that_cannot_be_read_is_one_line(tmp_path, content, place) -> None:
    path = tmp_path / "questions"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_questions(path)
    assert f"{path}{place}" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [("R@100", "looks below"), ("AP", "looks below"), ("hits@5", "needs answers"), ("nDCG@11", "unknown")],
)
def test_a_measure_that_the_judgements_do_not_give_is_refused(name, why) -> None:
    with pytest.raises(InputError, match=f"--measure {name}: {why}"):
        check_measure(name, 10)
    assert check_measure("MRR@10", 10) == "RR@10"
    with pytest.raises(InputError, match="larger --depth"):
        check_measure("nDCG@10", 4)


def test_nothing_of_a_corpus_that_cannot_be_written_stays(tmp_path, monkeypatch) -> None:
    def fail(rows: object) -> bytes:
        raise OSError(28, f"Error writing bytes to file. Detail: {os.strerror(28)}")  # as Arrow does

    monkeypatch.setattr("flows.judging.folder.json_lines_bytes", fail)
    with pytest.raises(StoreError, match=r"judged.*: no space left \("), ExitStack() as first:
        start(first, tmp_path / "judged", ["one"])
    assert [path.name for path in tmp_path.iterdir()] == ["collection"]


def test_a_start_that_was_killed_is_repeated(running, folder) -> None:
    (folder / "judging").mkdir(parents=True)
    (folder / "judging/.lock").touch()
    (folder / ".corpus.jsonl.zst").write_text("a part")
    start(running, folder, ["one"])
    assert sorted(path.name for path in folder.iterdir()) == ["corpus.jsonl.zst", "judging"]
