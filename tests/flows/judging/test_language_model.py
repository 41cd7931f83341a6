"""A language model as judge: recorded answers, malformed ones, and failures."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from judged import settings, start
from language_models import Reply, chat, config, server

from flows.judging.folder import JudgingFolder
from flows.judging.language_model import grade, grade_of, judge_by_model, prompt, server_config
from pipeline.data.qrels import read_qrels
from pipeline.errors import InputError
from pipeline.language_model import endpoint
from pipeline.language_model.chat_completion import Message


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_WAIT", 0.01)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("It answers.\ngrade: 3", 3),
        ("grade: 3 would be too high.\n**Grade:** 2", 2),
        ("1", 1),
        ("<think>grade: 3</think>grade: 0", 0),
        ("##final grade## [2]", 2),
        ("grade: 5", None),
        ("grade: 2.5", None),
        ("grade: 25", None),
        ("It is very relevant.", None),
        ("", None),
    ],
)
def test_the_last_grade_of_an_answer_counts(answer: str, found: int | None) -> None:
    assert grade_of(answer) == found


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["Well.", "grade: 1"], 1),
        (["Well.", "The answer is 3."], 3),
        (["", "2"], 2),
        (["Well.", "2 of 3"], None),
        (["Well.", "Hm."], None),
        (["1 of 3", "10"], None),
    ],
)
def test_a_model_that_gives_no_grade_is_asked_for_it_alone(answers: list[str], found: int | None) -> None:
    """A request that is repeated has the same answer at temperature 0."""
    asked: list[list[Message]] = []

    def ask(messages: list[Message]) -> str:
        asked.append(messages)
        return answers[len(asked) - 1]

    assert grade(ask, "q", "t", "x") == found
    first, second = asked
    assert second[: len(first)] == first
    assert [one["role"] for one in second[len(first) :]] == ["assistant", "user"]
    assert all(one["content"] for one in second)  # some servers refuse empty ones


def test_a_long_passage_is_cut_and_titles_are_read() -> None:
    _, user = prompt("who?", "Title", "x" * 100_000)
    assert user["content"].startswith("Question: who?\n\nPassage:\nTitle\nxxx")
    assert len(user["content"]) < 9_000


def answering(body: dict) -> Reply:
    """Grades p0 and p1, and no passage of the question `odd`."""
    text = body["messages"][1]["content"]
    if "Question: odd" in text:
        return chat("I cannot say.")
    return chat(f"Because.\ngrade: {3 if 'p0' in text else 1 if 'p1' in text else 0}")


def test_a_model_judges_all_questions_and_skips_what_it_cannot_grade(tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    lines: list[str] = []
    with ExitStack() as running, server(answering) as model:
        judging = start(running, tmp_path / "judged", ["one", "odd", "two"])
        used = config(endpoint=model.address, model="tiny")
        judge_by_model(judging, used, lambda number, total: shown.append((number, total)), lines.append)
    assert read_qrels(tmp_path / "judged/qrels/test.tsv") == {
        query_id: {"p0": 3, "p1": 1, "p2": 0, "p3": 0} for query_id in ("q1", "q3")
    }
    (line,) = lines
    assert line.startswith("question 'odd' is skipped: no grade for p")
    assert shown == [(1, 3), (2, 3), (3, 3)]


def test_a_failing_server_ends_in_one_line_and_the_same_command_resumes(tmp_path: Path) -> None:
    with ExitStack() as running, server([chat("grade: 2"), chat("grade: 1"), Reply(500, b"oops")]) as model:
        judging = start(running, tmp_path / "judged", ["one", "two"])
        used = config(endpoint=model.address, model="tiny", concurrent=1)
        with pytest.raises(InputError, match=r"^--endpoint http.*status 500: oops.*; the same command continues$"):
            judge_by_model(judging, used, lambda number, total: None, print)
    with ExitStack() as running, server([chat("grade: 0")]) as model:
        judging = start(running, tmp_path / "judged", ["one", "two"])
        judge_by_model(judging, config(endpoint=model.address, model="tiny"), lambda number, total: None, print)
        assert len(model.requests) == 2 + 4
    assert read_qrels(tmp_path / "judged/qrels/test.tsv")["q1"] == {"p0": 2, "p1": 1, "p2": 0, "p3": 0}


def test_a_person_and_a_model_do_not_share_a_folder(tmp_path: Path) -> None:
    with ExitStack() as running:
        start(running, tmp_path / "judged", ["one"])
    other = settings().__class__(**{**vars(settings()), "judge": "tiny"})
    with pytest.raises(InputError, match="was started with the judgements of a person; repeat --model, or choose"):
        JudgingFolder(tmp_path / "judged").check(other)


def test_a_wrong_address_is_an_error_of_the_option() -> None:
    with pytest.raises(InputError, match=r"^--endpoint: an address such as"):
        server_config("nonsense", "tiny", "OPENAI_API_KEY", 300, 8, 120.0)
    with pytest.raises(InputError, match=r"^--key-variable: the name of an environment variable"):
        server_config("http://127.0.0.1:9/v1", "tiny", "sk-secret", 300, 8, 120.0)
    with pytest.raises(InputError, match=r"^--timeout-seconds: Input should be greater than 0"):
        server_config("http://127.0.0.1:9/v1", "tiny", "OPENAI_API_KEY", 300, 8, 0.0)
    with pytest.raises(InputError, match=r"^--timeout-seconds: Input should be less than or equal to 86400"):
        server_config("http://127.0.0.1:9/v1", "tiny", "OPENAI_API_KEY", 300, 8, 1e10)


def test_a_passage_that_the_server_refuses_skips_its_question_and_ends_nothing(tmp_path: Path) -> None:
    """A filter of contents would else end each run at the same passage."""

    def filtering(body: dict) -> Reply:
        text = body["messages"][-1]["content"]
        return Reply(400, b'{"error": {"message": "content filter"}}') if "Question: two" in text else answering(body)

    with ExitStack() as running, server(filtering) as model:
        judging = start(running, tmp_path / "judged", ["one", "two", "three"])
        used = config(endpoint=model.address, model="tiny")
        lines: list[str] = []
        judge_by_model(judging, used, lambda number, total: None, lines.append)
    (line,) = lines
    assert "question 'two' is skipped: status 400: content filter" in line
    assert [*read_qrels(tmp_path / "judged/qrels/test.tsv")] == ["q1", "q3"]
    with ExitStack() as running, server([Reply(400, b"no such model")]) as model:
        judging = start(running, tmp_path / "other", ["one", "two"])
        with pytest.raises(InputError, match=r"status 400: no such model for p., and no other .*; the same command"):
            judge_by_model(judging, config(endpoint=model.address, model="tiny"), lambda number, total: None, print)
        assert judging.state()["skipped"] == 0


def test_a_refusal_of_the_first_passage_skips_its_question_and_others_are_judged(tmp_path: Path) -> None:
    """Else the same command could never continue."""

    def filtering(body: dict) -> Reply:
        text = body["messages"][1]["content"]
        refused = "Question: one" in text and "p0" in text
        return Reply(400, b'{"error": {"message": "content filter"}}') if refused else answering(body)

    for _ in range(2):
        with ExitStack() as running, server(filtering) as model:
            judging = start(running, tmp_path / "judged", ["one", "two"])
            judge_by_model(judging, config(endpoint=model.address, model="tiny"), lambda number, total: None, print)
    assert [*read_qrels(tmp_path / "judged/qrels/test.tsv")] == ["q2"]


def test_a_model_that_never_grades_is_an_error_and_skips_nothing(tmp_path: Path) -> None:
    """A reasoning model that is cut within its thoughts would else leave out all questions, for good."""
    with ExitStack() as running, server([chat("<think>long")]) as model:
        judging = start(running, tmp_path / "judged", ["one", "two"])
        with pytest.raises(InputError, match=r"no grade for p., and no other passage .*--answer-tokens"):
            judge_by_model(judging, config(endpoint=model.address, model="tiny"), lambda number, total: None, print)
        assert judging.state()["skipped"] == 0


def test_a_model_stops_at_the_end_of_the_plan(tmp_path: Path) -> None:
    """A log of thousands of questions would else cost all of them."""
    with ExitStack() as running, server([chat("grade: 1")]) as model:
        judging = start(running, tmp_path / "judged", [f"question {n}" for n in range(14)])
        judge_by_model(judging, config(endpoint=model.address, model="tiny"), lambda number, total: None, print)
    assert judging.comparison().questions == settings().rules.planned == 10


def test_a_slow_answer_holds_back_no_other_grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is on disk when it arrives: a killed run asks none of them again."""
    monkeypatch.setattr(endpoint, "GRACE", 0.1)

    def slow_first(body: dict) -> Reply:
        return Reply(200, b"x", seconds=60.0) if "p0" in body["messages"][-1]["content"] else chat("grade: 1")

    with ExitStack() as running, server(slow_first) as model:
        judging = start(running, tmp_path / "judged", ["one"])
        add = judging._add

        def interrupted_after_three(line):
            state = add(line)
            if sum(one["grade"] is not None for one in state["passages"]) == 3:
                raise KeyboardInterrupt
            return state

        monkeypatch.setattr(judging, "_add", interrupted_after_three)
        with pytest.raises(KeyboardInterrupt):
            judge_by_model(judging, config(endpoint=model.address, model="tiny"), lambda number, total: None, print)
    grades = [one["grade"] for one in judging.state()["passages"]]
    assert grades == [None, 1, 1, 1]
