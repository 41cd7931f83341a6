"""The systems that are judged: search methods of one run, or of several."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from answering import make_store
from typer.testing import CliRunner

from artifacts.errors import StoreError
from artifacts.runs import record_run
from artifacts.runs import runs as all_runs
from artifacts.store import Store
from flows.cli.main import app, main
from flows.cli.serve import listening_socket
from flows.deploy.processes import free_port
from flows.judging.systems import choose_systems, open_systems, pooled
from pipeline.errors import InputError, JavaFailed

pytestmark = pytest.mark.usefixtures("kept_searchers")
PASSAGES = ["sorted lists merge", "merge branches", "a list that is sorted", "nothing of it", "merge sorted heaps"]
DENSE = [0.1, 0.2, 0.9, 0.5, 0.3]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    model: Path = tmp_path_factory.mktemp("model")
    (model / "model.safetensors").write_bytes(b"a model's, which nothing reads")
    passages = [(f"p{n}", f"doc{n // 2}", f"title {n}", text) for n, text in enumerate(PASSAGES)]
    return make_store(tmp_path_factory.mktemp("store"), passages, "merge", np.array(DENSE)[:, None], model)


@pytest.fixture
def one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder that gives each question the vector (1)."""
    encoder = SimpleNamespace(
        dimension=1,
        is_steady=lambda: True,
        rows=lambda texts: [np.zeros(1, int)] * len(texts),
        vectors=lambda rows, together: np.ones((len(rows), 1), np.float32),
        cut=lambda text: "",
    )
    monkeypatch.setattr("pipeline.dense.question_encoder.question_encoder", lambda *arguments: encoder)


def test_the_default_is_all_methods_of_the_newest_run(store) -> None:
    systems = choose_systems(store, [], [])
    assert [(one.name, one.label) for one in systems] == [
        ("fusion", "dense + BM25"),
        ("dense", "dense"),
        ("bm25", "BM25"),
    ]


def test_several_runs_of_a_collection_are_compared_by_what_answers_in_each(store, tmp_path, one_vector) -> None:
    copy = Store(shutil.copytree(store.root, tmp_path / "store"))
    (first,) = all_runs(copy)
    record_run(copy, "an other", first.nodes, first.details)
    systems = choose_systems(copy, ["one", "an other"], ["bm25"])
    run_id = first.nodes["evaluate"].digest[:8]
    assert [one.name for one in systems] == [f"one-{run_id}-bm25", f"an-other-{run_id}-bm25"]
    assert [one.label for one in systems] == [f"one {run_id}: BM25", f"an other {run_id}: BM25"]
    assert [one.by for one in choose_systems(copy, ["one", "an other"], [])] == ["fusion", "fusion"]
    with open_systems(systems) as opened:
        asked = pooled(opened, "q1", "merge sorted", 2, 42)
    assert [*asked.rankings.values()] == [["p0", "p4"]] * 2


@pytest.mark.parametrize(
    ("runs", "ways", "what"),
    [
        ([], ["dense"], "one system cannot be compared"),
        (["one"], [], None),
        ([], ["dense", "x"], "--systems x: no such search method"),
        ([], ["dense", "dense"], "--systems: one of them appears twice"),
        (["one", "one"], [], "RUN: one of them appears twice"),
        (["one", "ID"], [], "RUN: two of them are the same run"),
        (["other"], [], "no measured run 'other'"),
    ],
)
def test_systems_that_cannot_be_compared_are_refused(store, runs, ways, what) -> None:
    runs = [run.replace("ID", all_runs(store)[0].nodes["evaluate"].digest[:8]) for run in runs]
    if what is None:
        assert len(choose_systems(store, runs, ways)) == 3
        return
    with pytest.raises(InputError, match=what):
        choose_systems(store, runs, ways)


def test_a_question_has_the_first_passages_of_all_systems_shuffled(store, one_vector) -> None:
    with open_systems(choose_systems(store, [], ["dense", "bm25"])) as opened:
        asked = pooled(opened, "q1", "merge sorted", 2, 42)
        assert asked == pooled(opened, "q1", "merge sorted", 2, 42).model_copy(update={"time": asked.time})
        orders = {
            tuple(one.passage_id for one in pooled(opened, "q1", "merge sorted", 2, seed).passages) for seed in range(9)
        }
    assert asked.rankings == {"dense": ["p2", "p4"], "bm25": ["p0", "p4"]}  # p2 and p3 are of one document
    assert {one.passage_id for one in asked.passages} == {"p0", "p2", "p4"}
    assert len(orders) > 1
    (found,) = [one for one in asked.passages if one.passage_id == "p2"]
    assert (found.title, found.text, found.excerpt) == ("title 2", PASSAGES[2], PASSAGES[2])
    assert [found.excerpt[start:end] for start, end in found.highlights] == ["sorted"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--questions", "none"], "none: no such file"),
        (["--log", "none"], "none: no such file"),
        (["--questions", "empty"], "empty: empty file"),
        (["--systems", "bm25"], "one system cannot be compared"),
        (["--measure", "AP"], "--measure AP: looks below the first 10 passages"),
        (["--measure", "x"], "--measure x: unknown measure"),
        (["other"], "no measured run 'other'"),
        (["--out", "empty"], "--out empty: exists, and holds no judgements"),
        (["--store", "nothing"], "nothing: no such store"),
        (["--endpoint", "http://127.0.0.1:9/v1"], "--endpoint and --model belong together"),
        (["--endpoint", "http://127.0.0.1:9/v1", "--model", "m"], "a language model types no questions"),
        (["--out", "STORE/objects/mine"], "STORE/objects/mine: inside the store STORE; choose a folder outside"),
    ],
)
def test_what_cannot_be_judged_is_one_line_and_leaves_nothing(store, tmp_path, monkeypatch, options, what) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    options = [option.replace("STORE", str(store.root)) for option in options]
    arguments = ["judge", "--out", "judged", "--store", str(store.root), *options]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError | StoreError), result.output
    assert what.replace("STORE", str(store.root)) in str(result.exception)
    assert "\n" not in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_used_port_is_an_error_before_anything_is_written(store, tmp_path) -> None:
    with listening_socket(port := free_port()):
        arguments = ["judge", "--out", str(tmp_path / "judged"), "--store", str(store.root), "--port", str(port)]
        result = CliRunner().invoke(app, arguments)
    assert f"--port {port}: another program uses this port" in str(result.exception)
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def by_model(store, tmp_path: Path) -> list[str]:
    """The options of a language model that judges one question."""
    (tmp_path / "questions").write_text("merge?\n")
    place = ["--out", str(tmp_path / "judged"), "--questions", str(tmp_path / "questions"), "--store", str(store.root)]
    return ["judge", *place, "--systems", "bm25,dense", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m"]


def test_an_interrupted_language_model_shows_the_comparison(by_model, one_vector, monkeypatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.judging.language_model.judge_by_model", interrupted)
    result = CliRunner().invoke(app, by_model)
    assert result.exit_code == 0
    assert "0 questions, mean" in result.output


def test_a_failure_of_bm25_while_a_language_model_judges_is_one_line(by_model, one_vector, monkeypatch, capsys) -> None:
    def failed(*arguments: object) -> None:
        raise JavaFailed("BM25 failed: no memory")

    monkeypatch.setattr("flows.judging.language_model.judge_by_model", failed)
    with pytest.raises(SystemExit) as ended:
        main(lambda: app(by_model))
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: BM25 failed: no memory"
