"""`cocondenser compare`: which runs, which systems, which questions."""

import json
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
from flows.cli import app
from flows.recipe import resolve
from pipeline import runs
from pipeline.evaluate import evaluate
from pipeline.work import Work, silent

EVALUATE = resolve("tiny").evaluate.model_copy(update={"bootstrap_samples": 100, "fusion_weights": [0.5]})
QUESTIONS = [f"t{n}" for n in range(6)]
LISTS = {
    "poor": {"t0": "10", "t1": "21", "t2": "5", "t3": "3", "t4": "4", "t5": "5"},
    "good": {"t0": "01", "t1": "21", "t2": "2", "t3": "3", "t4": "54", "t5": "5"},
}
"""Passages that stage 1 finds, best first; that of the question's own number is relevant."""


def add(store: Store, name: str, day: int, lists: dict[str, str], questions: list[str]) -> None:
    """A finished run `name` whose stage 1 found these."""
    folder = store.root.parent / f"{name}-{day}"
    folder.mkdir()
    passages = [(f"p{n}", f"p{n}", "", f"text of [bold]p{n}[/bold] in {name}") for n in range(6)]
    asked = [(q, "test", f"question {q}") for q in questions]
    collection = write_collection(folder / "ingest", passages, asked, [("test", q, f"p{q[1:]}", 1) for q in questions])
    found = folder / "stage1"
    found.mkdir()
    with runs.writer(found) as write:
        for query_id in questions:
            ids = [f"p{n}" for n in lists[query_id]]
            write("test", [query_id] * len(ids), ids, np.arange(len(ids), 0, -1.0))
    out = folder / "evaluate"
    out.mkdir()
    evaluate(EVALUATE, collection, None, Work(out, folder, make_machine(), silent), stage1=found)
    digests = {"ingest": "0" * 64, "evaluate": f"{day}" * 64, "report": f"a{day}" * 32}
    paths = {"ingest": collection, "evaluate": out, "report": folder}
    nodes = {}
    for node, digest in digests.items():
        place = store.objects / digest
        if not place.exists():
            place.symlink_to(paths[node])
        nodes[node] = Ref(node, digest, digest, digest, place, {})
    record_run(store, name, nodes, {"recipe": {}}, datetime(2026, 11, day, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    add(store, "one", 1, LISTS["good"], QUESTIONS)
    add(store, "one", 2, LISTS["poor"], QUESTIONS)
    add(store, "two", 3, LISTS["good"], QUESTIONS[:5])
    return store


def called(store: Store, *arguments: str, code: int = 0):
    ended = CliRunner().invoke(app, ["compare", *arguments, "--store", str(store.root)], env={"COLUMNS": "120"})
    assert ended.exit_code == code, ended.output
    return ended


def test_a_recipe_is_its_newest_run(store):
    shown = called(store, "one", "two")
    lines = shown.stdout.splitlines()
    assert lines[0] == "RR@10 on 5 questions of test"
    assert lines[1:3] == [f"a  one {'2' * 12}", f"b  two {'3' * 12}"]
    assert lines[5].split()[:5] == ["stage", "1", ".600", ".800", ".200"]
    assert lines[5].split()[-3:] == ["2", "2", "1"]
    assert shown.stderr.splitlines()[0] == f"warning: one {'2' * 12}: 1 questions that the other has not are left out"


@pytest.mark.parametrize("named", ["1111", "1" * 64, "a1a1", f"store/objects/{'a1' * 32}/report.html"])
def test_a_run_goes_by_its_id_or_its_report(store, named):
    assert called(store, named, "two").stdout.splitlines()[1] == f"a  one {'1' * 12}"


def test_the_questions_that_changed_most_come_with_their_passages(store):
    lines = [line.rstrip() for line in called(store, "one", "1111", "--changes", "2").stdout.splitlines()]
    at = lines.index("question t2")
    assert lines[at + 1 : at + 3] == [
        "  a   .000  text of [bold]p5[/bold] in one",
        "  b  1.000  ✓ text of [bold]p2[/bold] in one",
    ]
    assert len([line for line in lines if line.startswith("question ")]) == 2


def test_as_json(store):
    found = json.loads(called(store, "one", "1111", "--measure", "Success@5", "--json").stdout)
    assert (found["split"], found["measure"], found["questions"]) == ("test", "Success@5", 6)
    [row] = found["systems"]
    assert (row["a_system"], row["b_system"], row["wins"], row["losses"]) == ("stage 1", "stage 1", 1, 0)
    assert [change["query_id"] for change in found["changes"]] == ["t2"]
    assert found["changes"][0]["b_first"]["relevant"] is True


def test_what_no_run_is_is_told(store):
    assert "no measured run 'three'" in called_error(store, "three", "two")
    assert "no measured run 'tow' (did you mean two?)" in called_error(store, "one", "tow")
    assert "--measure MRR: there are RR@10" in called_error(store, "one", "two", "--measure", "MRR")


def called_error(store: Store, *arguments: str) -> str:
    ended = CliRunner().invoke(app, ["compare", *arguments, "--store", str(store.root)])
    return str(ended.exception)
