"""The figures before and after an update, on the user's test questions or on the runs' own."""

import json
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from answering import make_store

from artifacts.runs import SERIES, record_run, series_of
from artifacts.runs import runs as all_runs
from artifacts.store import Store
from flows.runs.series import trained_run
from flows.serving.engine import evaluated_engines
from flows.updates.figures import FELL, BeforeAndAfter, before_and_after
from flows.updates.flow import Updated, ended
from flows.updates.judged import answerable, check_grades, read_judged
from pipeline.errors import InputError

pytestmark = pytest.mark.usefixtures("kept_searchers")
SUBJECTS = [f"{name}{kind}" for name in ("harbour", "violin", "glacier", "orchard") for kind in ("one", "two", "six")]


def write_judged(folder: Path, **documents: str) -> Path:
    """A folder of `judge`: one question per subject, whose passage `p-SUBJECT` is relevant. `documents`: of passages
    whose document is not called as their subject is."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"p-{s}", "doc_id": documents.get(s, s), "title": "", "text": s} for s in SUBJECTS]
    for name, rows in (("corpus", corpus), ("queries", [{"_id": f"q-{s}", "text": s} for s in SUBJECTS])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["query-id\tcorpus-id\tscore", *(f"q-{s}\tp-{s}\t2" for s in SUBJECTS)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


def keep_lines(path: Path, count: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))


def append(path: Path, count: int) -> None:
    """Repeats the first lines at the end."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, *lines[:count]]))


def passages(*more: tuple[str, str]) -> list[tuple[str, str, str, str]]:
    """A document per subject, then `more`: (document, text)."""
    rows = [*((s, f"about the {s} and its many other things") for s in SUBJECTS), *more]
    return [(f"{document}#{n}", document, "", text) for n, (document, text) in enumerate(rows)]


def add_update(store: Store, other: Store) -> None:
    """Records the run of another store as an update of the first one's."""
    (first,), (update,) = (list(evaluated_engines(one, "one")) for one in (store, other))
    nodes = {}
    for node, ref in update.run.nodes.items():
        path = store.objects / ref.digest
        if not path.exists():
            shutil.copytree(ref.path, path)
        nodes[node] = replace(ref, path=path)
    record_run(store, "one", nodes, {**update.run.details, SERIES: series_of(first.run)})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A run and its update, in which three more documents contain nothing but each subject."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("before", "after"))
    crowd = [(f"new{n}", f"{s} {s}") for s in SUBJECTS for n in range(3)]
    many = passages(*crowd)
    store = make_store(one, passages(), SUBJECTS[0], np.zeros((len(SUBJECTS), 1)), depth=50)
    add_update(store, make_store(other, many, SUBJECTS[0], np.zeros((len(many), 1)), depth=50))
    return store


@pytest.fixture(autouse=True)
def by_bm25(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.serving.engine.default_system", lambda metrics: "bm25")


def test_figures_on_the_users_questions_fall(store: Store, tmp_path: Path) -> None:
    judged = read_judged(write_judged(tmp_path / "judged"))
    after, before = evaluated_engines(store, "one")
    found = before_and_after(before, after.run, "RR@10", judged)
    assert (found.questions, found.difference.a, found.difference.b) == (12, 1.0, 0.25)
    assert found.fell
    of = f"{tmp_path / 'judged'}, since {before.run.created[:10]}"
    assert found.line == f"RR@10 on 12 questions of {of}: 1.000 → .250 (p < .001), lower"
    assert found.as_json()["fell"] is True
    assert "p_holm" not in found.as_json()


def test_the_runs_own_questions_are_compared_without_others(store: Store) -> None:
    after, before = evaluated_engines(store, "one")
    found = before_and_after(before, after.run, "RR@10", None)
    assert (found.questions, found.of, found.fell) == (1, "dev", False)


def test_a_series_of_updates_is_compared_with_its_first_run(store: Store) -> None:
    after, before = evaluated_engines(store, "one")
    assert trained_run(store, after).run == before.run
    assert trained_run(store, before).run == before.run


def test_a_run_of_another_series_with_the_same_model_is_not_compared(store: Store, tmp_path: Path) -> None:
    copy = Store(shutil.copytree(store.root, tmp_path / "store"))
    first = next(iter(all_runs(copy)))
    of_a_series = [("2026-01-01", {}), ("2026-01-02", {}), ("2026-01-03", {SERIES: "2026-01-01T00:00:00+00:00"})]
    for day, details in of_a_series:
        record_run(
            copy,
            "two",
            first.nodes,
            {**first.details, SERIES: None, **details},
            datetime.fromisoformat(f"{day}T00:00:00Z"),
        )
    third, second, one = evaluated_engines(copy, "two")
    assert trained_run(copy, third).run == one.run
    assert trained_run(copy, second).run == second.run


def test_the_trained_run_answers_by_its_own_method(store: Store) -> None:
    _, before = evaluated_engines(store, "one")
    assert trained_run(store, replace(before, requested="dense")).by == "bm25"


def test_a_document_that_no_longer_exists_asks_nothing(store: Store, tmp_path: Path) -> None:
    _, before = evaluated_engines(store, "one")
    judged = read_judged(write_judged(tmp_path / "judged", **{SUBJECTS[0]: "removed.md"}))
    assert answerable(judged, [before], 1) == [f"q-{s}" for s in SUBJECTS[1:]]
    with pytest.raises(InputError, match="judged: no test question has a relevant document"):
        answerable(judged, [before], 3)


def test_deleted_documents_lower_no_figures(store: Store, tmp_path: Path) -> None:
    """A second relevant document, which only the newer collection has, counts there alone."""
    after, before = evaluated_engines(store, "one")
    folder = write_judged(tmp_path / "judged")
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.writelines(f"q-{s}\tnew{n}\t2\n" for s in SUBJECTS for n in range(3))
    judged = read_judged(folder)
    assert before_and_after(before, after.run, "R@100", judged).difference.a == 1
    assert before_and_after(after, before.run, "R@100", judged).difference.b == 1


def test_ids_are_those_of_documents_without_a_corpus(tmp_path: Path) -> None:
    folder = write_judged(tmp_path / "judged")
    (folder / "corpus.jsonl").unlink()
    assert read_judged(folder).grades[f"q-{SUBJECTS[0]}"] == {f"p-{SUBJECTS[0]}": 2}


def repeat_first_line(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[0]]))


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda folder: shutil.rmtree(folder), "no such folder; queries.jsonl and qrels/test.tsv are expected in it"),
        (lambda folder: (folder / "queries.jsonl").unlink(), "queries.jsonl does not exist, plain or compressed"),
        (lambda folder: shutil.rmtree(folder / "qrels"), "qrels/test.tsv does not exist, plain or compressed"),
        (
            lambda folder: (folder / "queries.jsonl").write_text('{"_id": "x", "text": "y"}'),
            "qrels/test.tsv: question 'q-harbourone' is not in queries.jsonl",
        ),
        (lambda folder: append(folder / "queries.jsonl", 1), "queries.jsonl:13: query 'q-harbourone' is already at"),
        (lambda folder: keep_lines(folder / "queries.jsonl", 11), "question 'q-orchardsix' is not in queries.jsonl"),
        (lambda folder: keep_lines(folder / "qrels" / "test.tsv", 1), "qrels/test.tsv: no judgement"),
        (lambda folder: (shutil.rmtree(folder), folder.write_text("")), "not a folder; queries.jsonl and qrels/"),
        (lambda folder: (folder / "queries.jsonl").write_text("{"), "queries.jsonl:1: "),
        (lambda folder: repeat_first_line(folder / "queries.jsonl"), "query 'q-harbourone' is already at "),
    ],
)
def test_a_wrong_folder_of_questions_is_refused_in_one_line(tmp_path: Path, damage, line: str) -> None:
    folder = write_judged(tmp_path / "judged")
    damage(folder)
    with pytest.raises(InputError) as error:
        read_judged(folder)
    assert line in str(error.value)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_questions_without_a_relevant_document_are_refused_before_the_update(tmp_path: Path) -> None:
    judged = read_judged(write_judged(tmp_path / "judged"))
    check_grades(judged, 2)
    with pytest.raises(InputError) as error:
        check_grades(judged, 3)
    line = "no relevant document: the largest grade of qrels/test.tsv is 2, and evaluate.relevance is 3"
    assert str(error.value) == f"{tmp_path / 'judged'}: {line}"


def test_the_state_of_an_update_says_whether_figures_fell(store: Store, tmp_path: Path) -> None:
    counts = {"documents": 3, "passages": 9, "shards": 2, "shards_encoded": 1, "shards_reused": 1}
    judged = read_judged(write_judged(tmp_path / "judged"))
    after, before = evaluated_engines(store, "one")
    lower = before_and_after(before, after.run, "RR@10", judged)
    same = before_and_after(before, before.run, "RR@10", judged)

    def state(figures: BeforeAndAfter | None) -> tuple[str, str | None]:
        found = ended(Updated({}, counts, figures))
        assert found.is_completed()
        return found.name, found.message

    assert state(lower) == (FELL, lower.line)
    assert state(same) == ("Completed", same.line)
    assert state(None) == ("Completed", "3 documents, 9 passages: 1 of 2 shards encoded again, 1 reused")
    assert len(all_runs(store)) == 2
