"""`cocondenser compare`: which runs, which systems, which questions."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from machines import make_machine
from searched import write_collection
from typer.testing import CliRunner

from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.cli.main import app
from flows.recipes.recipe import resolve
from flows.runs import evaluated
from pipeline.data import runs
from pipeline.data.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.evaluate.evaluate import evaluate
from pipeline.runtime.work import Work, silent

EVALUATE = resolve("tiny").evaluate.model_copy(update={"bootstrap_samples": 100, "fusion_weights": [0.5]})
QUESTIONS = [f"t{n}" for n in range(6)]
LISTS = {
    "poor": {"t0": "10", "t1": "21", "t2": "5", "t3": "3", "t4": "4", "t5": "5"},
    "good": {"t0": "01", "t1": "21", "t2": "2", "t3": "3", "t4": "54", "t5": "5"},
}
"""Passages that stage 1 finds, best first. The passage with the question's number is relevant."""


def add(
    store: Store,
    name: str,
    day: int,
    lists: dict[str, str],
    questions: list[str],
    node: str = "stage1",
    least: int = 1,
    by_answers: bool = False,
    dev: bool = True,
) -> None:
    """A finished run `name` with these lists of its dense run. `by_answers`: passages hold answers and are not judged.
    `dev`: the run has a dev question too."""
    folder = store.root.parent / f"{name}-{day}"
    folder.mkdir()
    passages = [(f"p{n}", f"p{n}", "", f"text of [bold]p{n}[/bold] in {name}") for n in range(6)]
    queries = [(q, "test", f"question {q}") for q in questions]
    queries += [("d0", "dev", "question d0")] if dev else []
    judged = [(split, q, f"p{q[1:]}", 2) for q, split, _ in queries]
    collection = write_collection(folder / "ingest", passages, queries, judged)
    if by_answers:
        answered = [(q, split, text, [f"p{q[1:]}"]) for q, split, text in queries]
        write_table(collection / "queries.parquet", schemas()["queries"], answered)
        write_table(collection / "qrels.parquet", schemas()["qrels"], [])
    dense_run = folder / "stage1"
    dense_run.mkdir()
    with runs.writer(dense_run) as write:
        for query_id, split, _ in queries:
            ids = [f"p{n}" for n in lists.get(query_id, "01")]
            write(split, [query_id] * len(ids), ids, np.arange(len(ids), 0, -1.0))
    out = folder / "evaluate"
    out.mkdir()
    config = EVALUATE.model_copy(update={"relevance": least})
    evaluate(config, collection, None, Work(out, folder, make_machine(), silent), **{node: dense_run})
    digests = {
        "ingest": f"c{name[0]}" * 32,
        "evaluate": f"{day}" * (60 // len(f"{day}")) + f"{day:04}",
        "report": f"a{day % 10}" * 32,
    }
    paths = {"ingest": collection, "evaluate": out, "report": folder}
    nodes = {}
    for node, digest in digests.items():
        path = store.objects / digest
        if not path.exists():
            path.symlink_to(paths[node])
        nodes[node] = Ref(node, digest, digest, digest, path, {})
    record_run(store, name, nodes, {"recipe": {}}, datetime(2026, 11, day, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The digests of its artifacts are invented, so they are not checked."""
    monkeypatch.setattr(evaluated, "check_whole", lambda *_: None)
    store = Store(tmp_path / "store")
    store.prepare()
    add(store, "one", 1, LISTS["good"], QUESTIONS)
    add(store, "one", 2, LISTS["poor"], QUESTIONS)
    add(store, "two", 3, LISTS["good"], QUESTIONS[:5])
    return store


def run_compare(store: Store, *arguments: str, code: int = 0):
    result = CliRunner().invoke(app, ["compare", *arguments, "--store", str(store.root)], env={"COLUMNS": "120"})
    assert result.exit_code == code, result.output
    return result


def test_a_recipe_names_its_newest_run(store):
    result = run_compare(store, "one", "two")
    lines = result.stdout.splitlines()
    assert lines[0] == "RR@10 on 5 questions of test"
    assert lines[1:3] == [f"a  one {'2' * 8}", f"b  two {'3' * 8}"]
    assert lines[5].split()[:7] == ["answers", "questions:", "stage", "1", ".600", ".800", ".200"]
    assert lines[5].split()[-3:] == ["2", "2", "1"]
    assert result.stderr.splitlines() == [
        "warning: the two runs have different collections",
        f"warning: one {'2' * 8}: stage 1: no list is longer than 2; RR@10 is RR@2 there",
        f"warning: two {'3' * 8}: stage 1: no list is longer than 2; RR@10 is RR@2 there",
        f"warning: one {'2' * 8}: questions that the other run does not have, left out: 1",
    ]


@pytest.mark.parametrize(("a", "b"), [(False, False), (True, False), (False, True)])
def test_without_dev_questions_a_warning_says_so(store, a, b):
    add(store, "first", 6, LISTS["poor"], QUESTIONS, dev=a)
    add(store, "other", 7, LISTS["good"], QUESTIONS, node="stage2", dev=b)
    result = run_compare(store, "first", "other")
    assert result.stdout.splitlines()[5].split()[:6] == ["answers", "questions:", "stage", "1,", "stage", "2"]
    without = [name for name, dev in ((f"first {'6' * 8}", a), (f"other {'7' * 8}", b)) if not dev]
    messages = [line for line in result.stderr.splitlines() if "no dev questions" in line]
    assert messages == [f"warning: {name}: no dev questions, so nothing was chosen by them" for name in without]


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("R@1000", "no list is longer than 5; R@1000 is R@5 there"),
        ("AP", "no list is longer than 5; AP is cut"),
        ("Success@5", None),
    ],
)
def test_a_measure_deeper_than_a_list_is_reported(store, measure, message):
    add(store, "first", 6, {**LISTS["poor"], "t0": "54321"}, QUESTIONS)
    add(store, "other", 7, {**LISTS["good"], "t0": "543210"}, QUESTIONS)  # the whole collection
    warnings = run_compare(store, "first", "other", "--measure", measure).stderr.splitlines()
    lines = [line for line in warnings if "no list is longer" in line]
    assert lines == ([f"warning: first {'6' * 8}: stage 1: {message}"] if message else [])


@pytest.mark.parametrize("named", ["1111", "1" * 8, f"store/objects/{'a1' * 32}/report.html"])
def test_a_run_is_identified_by_its_id_or_its_report(store, named):
    assert run_compare(store, named, "two").stdout.splitlines()[1] == f"a  one {'1' * 8}"


def test_the_questions_that_changed_most_are_shown_with_their_passages(store):
    lines = [line.rstrip() for line in run_compare(store, "one", "1111", "--changes", "2").stdout.splitlines()]
    at = lines.index("question t2")
    assert lines[at + 1 : at + 3] == [
        "  a   .000  text of [bold]p5[/bold] in one",
        "  b  1.000  ✓ text of [bold]p2[/bold] in one",
    ]
    assert len([line for line in lines if line.startswith("question ")]) == 2


def test_a_narrow_terminal_shows_every_name_and_figure(store):
    result = CliRunner().invoke(app, ["compare", "one", "1111", "--store", str(store.root)], env={"COLUMNS": "50"})
    heading, *lines = [line.rstrip() for line in result.stdout.splitlines()[4:] if line.strip()]
    assert heading.split() == ["a", "b", "b", "−", "a", "p", "(Holm)", "wins", "ties", "losses"]
    wide = run_compare(store, "one", "1111").stdout.splitlines()[5].split()
    assert lines[0].split()[-9:] == wide[-9:]
    assert "".join(line[:10].strip() for line in lines[:3]).replace(" ", "") == "answersquestions:stage1"


def test_json_has_the_figures_and_the_changed_questions(store):
    output = json.loads(run_compare(store, "one", "1111", "--measure", "Success@5", "--json").stdout)
    assert (output["split"], output["measure"], output["questions"]) == ("test", "Success@5", 6)
    assert output["a"] == {"recipe": "one", "id": "2" * 8}
    [row] = output["systems"]
    assert (row["a"], row["b_label"], row["answering"]) == ("stage1", "stage 1", True)
    assert (row["figures"]["wins"], row["figures"]["losses"]) == (1, 0)
    assert [change["query_id"] for change in output["changes"]] == ["t2"]
    assert output["changes"][0]["b_first"]["relevant"] is True


def test_systems_with_different_names_are_compared_if_both_answer_questions(store):
    add(store, "later", 4, LISTS["good"], QUESTIONS, node="stage2")
    lines = run_compare(store, "1111", "later").stdout.splitlines()
    assert lines[5].startswith("answers questions: stage 1, stage 2 ")
    assert lines[5].split()[-3:] == ["0", "6", "0"]
    assert len([line for line in lines if "stage" in line]) == 1


def test_different_relevance_grades_are_reported(store):
    add(store, "strict", 5, LISTS["good"], QUESTIONS, least=2)
    assert "the lowest relevant grade is 1 in a, 2 in b" in run_compare(store, "1111", "strict").stderr


def test_the_figures_need_no_collection(store):
    shutil.rmtree(store.root.parent / "one-1" / "ingest")
    result = run_compare(store, "one", "1111")
    assert "answers questions: stage 1" in result.stdout
    assert "the questions that changed cannot be shown: " in result.stderr


def test_a_measure_may_have_the_name_of_its_mean(store):
    by_mean = run_compare(store, "one", "1111", "--measure", "MRR@10", "--json")
    assert by_mean.stdout == run_compare(store, "one", "1111", "--measure", "RR@10", "--json").stdout


def test_questions_with_answers_are_compared_by_hits(store):
    add(store, "nq", 6, {**LISTS["poor"], "t0": "54321"}, QUESTIONS, by_answers=True)
    add(store, "nq", 7, LISTS["good"], QUESTIONS, by_answers=True)
    lines = [line.rstrip() for line in run_compare(store, "6666", "nq", "--measure", "hits@5").stdout.splitlines()]
    assert lines[0] == "hits@5 on 6 questions of test"
    assert lines[5].split()[:6] == ["answers", "questions:", "stage", "1", ".667", "1.000"]
    assert lines[5].split()[-3:] == ["2", "4", "0"]
    at = lines.index("question t2")
    assert lines[at + 1 : at + 3] == [
        "  a   .000  text of [bold]p5[/bold] in nq",
        "  b  1.000  ✓ text of [bold]p2[/bold] in nq",
    ]
    assert "no split in common has RR@10; use --measure hits@20" in refused(store, "6666", "nq")
    assert "no split in common has hits@20; use --measure RR@10" in refused(store, "one", "two", "--measure", "hits@20")


def test_runs_lists_hits_where_there_are_answers(store):
    add(store, "nq", 6, LISTS["poor"], QUESTIONS, by_answers=True)
    result = CliRunner().invoke(app, ["runs", "--store", str(store.root)], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    heading, nq, two, *_ = result.stdout.splitlines()
    assert heading.split()[-4:] == ["MRR@10", "nDCG@10", "R@100", "hits@20"]
    assert nq.split()[1:] == ["66666666", "nq", "test", "stage", "1", ".833"]
    assert two.split()[1:] == ["33333333", "two", "test", "stage", "1", ".800", ".852", "1.000"]
    listed = json.loads(CliRunner().invoke(app, ["runs", "--store", str(store.root), "--json"]).stdout)
    assert listed[0]["questions"] == 6
    alone = CliRunner().invoke(app, ["runs", "--recipe", "nq", "--store", str(store.root)]).stdout
    assert alone.splitlines()[0].split()[-2:] == ["system", "hits@20"]
    assert listed[0]["systems"]["stage 1"]["hits@5"]["mean"] == pytest.approx(5 / 6, abs=1e-6)


def test_arguments_that_name_no_run_are_reported(store):
    assert "no measured run 'three'; `cocondenser runs`" in refused(store, "three", "two")
    assert "no measured run 'tow' (did you mean two?)" in refused(store, "one", "tow")
    assert "no measured run of marco; `cocondenser run marco` makes one" in refused(store, "one", "marco")
    assert "no measured run" in refused(store, "one", str(store.root.parent / "two" / "report.html"))
    copied = store.root.parent / "copy.html"
    copied.touch()
    assert f"{copied}: no report of the store {store.root}: use" in refused(store, str(copied), "two")
    assert "--measure MRR: unknown measure; known are RR@10" in refused(store, "one", "two", "--measure", "MRR")
    for nothing in ("", " "):
        message = f"{nothing!r} names no run: use a recipe, an id that `cocondenser runs` shows, or a report.html"
        assert refused(store, nothing, "two") == message
    assert refused(store, "one", "2") == f"{store.root}: '2' is too short for an id: use at least 4 characters"
    add(store, "more", 11, LISTS["good"], QUESTIONS)
    assert "2 runs have ids that begin with '1111'; use more characters" in refused(store, "1111", "two")


def refused(store: Store, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["compare", *arguments, "--store", str(store.root)])
    assert isinstance(result.exception, InputError)
    return str(result.exception)
