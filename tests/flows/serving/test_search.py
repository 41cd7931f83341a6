"""The answers of `cocondenser search` from a run."""

import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from answering import artifact, make_store
from fused import fuse_lists
from searched import hits_of
from typer.testing import CliRunner

from artifacts.store import Store
from flows.cli.main import app
from flows.serving.answers import Answer, questions_by_passage
from flows.serving.ask import ask, check_question
from flows.serving.engine import Engine, newest_engine
from flows.serving.question import LONGEST, Question
from flows.serving.session import open_session
from pipeline.bm25.index_process import clean_question
from pipeline.dense.shard_reuse import sha256
from pipeline.errors import InputError
from pipeline.evaluate.fusion.fuse import Choice

pytestmark = pytest.mark.usefixtures("kept_searchers")


def test_a_search_does_not_wait_for_prefect() -> None:
    """Importing it takes as long as the rest of a search without the model."""
    code = (
        "import sys, flows.serving.engine; print([m for m in ('prefect', 'torch', 'transformers') if m in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout.strip() == "[]", process.stderr


def test_a_passages_question_is_the_first_that_it_answers(tmp_path) -> None:
    qrels = [("q1", "a", 0), ("q2", "a", 1), ("q3", "a", 2), ("q3", "b", 1)]
    rows = [{"query_id": q, "passage_id": p, "relevance": grade} for q, p, grade in qrels]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "qrels.parquet")
    texts = [{"query_id": f"q{n}", "text": f"question {n}"} for n in (1, 2, 3)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(texts), tmp_path / "queries.parquet")
    assert questions_by_passage(tmp_path, ["a", "b", "c"]) == {"a": "question 2", "b": "question 3"}
    assert questions_by_passage(tmp_path, ["c"]) == {}


# A run in a store that dense retrieval, BM25 or both search

PASSAGES = ["sorted lists merge", "merge branches", "a list that is sorted", "nothing of it", "merge sorted heaps"]
QUESTION = "merge sorted lists"
DENSE = [0.1, 0.2, 0.9, 0.5, 0.3]
"""Inner product of each passage with any question; the question's vector is invented, all else is as in a real run."""
WAY = "reciprocal ranks with k = 60, the first with weight 0.9 (as requested)"
Make = Callable[..., Store]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """make(run_file=True, dense=False): a store with one evaluated run."""

    def store_of(run_file: bool, dense: bool) -> Store:
        passages = [(f"p{n}", f"doc{n}", f"title {n}", text) for n, text in enumerate(PASSAGES)]
        vectors, model = np.array(DENSE)[:, None] if dense else None, tmp_path_factory.mktemp("model")
        (model / "model.safetensors").write_bytes(b"a model's, which nothing reads")
        return make_store(tmp_path_factory.mktemp("store"), passages, QUESTION, vectors, model, run_file)

    return store_of


@pytest.fixture(scope="module")
def both(make: Make) -> Store:
    return make(run_file=False, dense=True)


SEARCH = """
import sys
from types import SimpleNamespace
import numpy as np
from flows.cli.main import app
from pipeline.bm25 import searcher

by, store = sys.argv[1:]
children, start = [], searcher.start_child
searcher.start_child = lambda *arguments, **options: children.append("java") or start(*arguments, **options)
if by != "bm25":
    from pipeline.dense import question_encoder

    question_encoder.question_encoder = lambda *_: SimpleNamespace(
        rows=lambda texts: [np.zeros(1, int)] * len(texts),
        vectors=lambda rows, together: np.ones((len(rows), 1), np.float32),
        cut=lambda text: "",
    )
app(["search", "merge sorted lists", "--by", by, "--store", store, "--json"], standalone_mode=False)
late = ("torch", "torch._dynamo", "transformers", "pandas", "scipy", "duckdb", "jnius", "prefect")
print([name for name in late if name in sys.modules] + children, file=sys.stderr)
"""
"""Searches in a process of its own, with an invented question vector. The last line says what was loaded."""


@pytest.mark.parametrize(
    ("by", "loaded"), [("bm25", ["java"]), ("dense", ["torch"]), ("fusion", ["torch", "java"])], ids=str
)
def test_a_search_loads_only_what_its_method_needs(both: Store, by: str, loaded: list[str]) -> None:
    command = [sys.executable, "-c", SEARCH, by, str(both.root)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["answers"][0]["doc_id"] == ("doc2" if by == "dense" else "doc0")
    assert process.stderr.splitlines()[-1] == str(loaded)


@pytest.fixture(scope="module")
def dense_and_run_file(make: Make) -> Store:
    return make(run_file=True, dense=True)


class OneVector:
    """An encoder that gives each question the vector (1)."""

    encoder = SimpleNamespace(dimension=1)

    def __init__(self, encoded: list[bytes]) -> None:
        self.encoded = encoded

    def rows(self, texts) -> list[np.ndarray]:
        self.encoded += [text.encode() for text in texts]
        return [np.zeros(1, int)] * len(texts)

    def vectors(self, rows, together) -> np.ndarray:
        return np.ones((len(rows), 1), np.float32)

    def cut(self, text) -> str:
        return f"cut, of {len(text.split())}: 4" if len(text.split()) > 4 else ""


@pytest.fixture
def encoded(monkeypatch) -> list[bytes]:
    """The questions that were encoded."""
    questions: list[bytes] = []
    monkeypatch.setattr("pipeline.dense.question_encoder.question_encoder", lambda *_: OneVector(questions))
    return questions


def search(engine: Engine, question: str, k: int) -> list[Answer]:
    with open_session(engine) as run:
        (answers,) = ask(run, [check_question(run, Question(question, k, engine.by))])
    assert isinstance(answers, list)
    return answers


def ids(store: Store, by) -> list[str]:
    return [answer.passage_id for answer in search(newest_engine(store, None, by), QUESTION, 3)]


def test_each_way_of_searching(both, encoded) -> None:
    assert ids(both, "dense") == ["p2", "p3", "p4"]
    assert ids(both, "bm25")[0] == "p0"  # the one with all three words
    from pipeline.bm25.searcher import Searcher

    with Searcher(artifact(both, "bm25")) as searcher:
        words = dict(hits_of(searcher, QUESTION, 10))
    joined = fuse_lists(words, {f"p{n}": s for n, s in enumerate(DENSE)}, Choice("reciprocal_rank", 0.9), 60)
    assert ids(both, "fusion") == [passage_id for passage_id, _ in joined[:3]]
    assert newest_engine(both, None).by == "fusion"  # it puts p0 first on dev, which is last for the dense run


def test_a_model_is_hashed_once(both, encoded, monkeypatch) -> None:
    monkeypatch.setattr("artifacts.objects.SETTLED_NS", 0)
    hashed: list[str] = []
    monkeypatch.setattr("pipeline.dense.shard_reuse.sha256", lambda path: hashed.append(path.name) or sha256(path))
    engine, model = newest_engine(both, None, "dense"), artifact(both, "stage1") / "model.safetensors"
    model.touch()
    with monkeypatch.context() as unchecked:
        unchecked.setattr("flows.serving.session.check_whole", lambda *_: None)
        with open_session(engine):
            assert hashed == [model.name]  # its hash was not checked before
    with open_session(engine):
        assert hashed == [model.name]


def test_words_of_no_passage_find_nothing(both) -> None:
    assert search(newest_engine(both, None, "bm25"), "zebra", 3) == []


def test_no_garbage_is_collected_during_a_search(both, encoded, monkeypatch) -> None:
    collects: list[bool] = []
    monkeypatch.setattr("flows.serving.ask.ask", lambda *_: collects.append(gc.isenabled()) or [[]])
    result = CliRunner().invoke(app, ["search", "lists", "--by", "bm25", "--store", str(both.root)])
    assert result.exit_code == 0, result.output
    assert (collects, gc.isenabled()) == ([False], True)


def test_the_objects_of_a_condition_are_collected_at_the_end(both, encoded, monkeypatch) -> None:
    """Else DuckDB reports each of them as a leak when the process ends."""
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    arguments = ["search", "branches", "--by", "bm25", "--where", "passage_id = 'p1'", "--store", str(both.root)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert not frozen


def test_a_session_closes_its_search_process(both, kept_searchers) -> None:
    engine = newest_engine(both, None, "bm25")
    before = len(kept_searchers)
    search(engine, "zebra", 3)
    assert engine.run.nodes["bm25"].path in kept_searchers[before:]


def test_the_command_reports_that_nothing_is_found(both) -> None:
    arguments = ["search", "the of and", "--by", "bm25", "--store", str(both.root)]
    assert CliRunner().invoke(app, arguments).stdout == "one, BM25\n\nnothing found\n"
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["answers"] == []


@pytest.mark.parametrize("by", ["dense", "bm25"])
def test_bytes_that_are_no_utf_8_become_question_marks(by, both, encoded) -> None:
    answers = search(newest_engine(both, None, by), "\udcff\udcfe branches", 1)
    assert [answer.passage_id for answer in answers] == [{"dense": "p2", "bm25": "p1"}[by]]
    assert encoded == ([b"?? branches"] if by == "dense" else [])


def test_a_run_without_dense_retrieval_answers_by_bm25(make, encoded) -> None:
    store = make(run_file=False, dense=False)
    with pytest.raises(InputError, match="--by fusion: the run of one has no fusion of dense retrieval and BM25"):
        newest_engine(store, None, "fusion")
    with pytest.raises(InputError, match="--by dense: the run of one has no dense retrieval"):
        newest_engine(store, None, "dense")
    assert ids(store, None)[0] == "p0"


def test_a_run_file_answers_no_question_so_the_dense_run_does(dense_and_run_file, encoded) -> None:
    store = dense_and_run_file
    engine = newest_engine(store, None)
    assert engine.metrics["winner_on_dev"] == "fusion"
    assert (engine.by, engine.dense_instead) == ("dense", True)
    assert ids(store, None) == ids(store, "dense") == ["p2", "p3", "p4"]
    assert not newest_engine(store, None, "dense").dense_instead
    for by in ("fusion", "bm25"):
        with pytest.raises(InputError, match="the first stage is a run file"):
            ids(store, by)


def test_the_command_reports_that_the_dense_run_answers(dense_and_run_file, encoded) -> None:
    arguments = ["search", QUESTION, "--store", str(dense_and_run_file.root)]
    result = CliRunner().invoke(app, arguments)
    assert "by dense: the first stage of the fusion is a run file" in result.stderr
    assert "one, dense" in result.stdout
    as_json = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(as_json.stdout)["by"] == "dense"
    quiet = CliRunner().invoke(app, [*arguments, "--by", "dense"])
    assert "by dense" not in quiet.stderr


@pytest.mark.parametrize(
    ("title", "heading"),
    [("Notes", " 1  Notes  a/b.md  0.5000"), ("", " 1  a/b.md  0.5000"), ("a/b.md", " 1  a/b.md  0.5000")],
)
def test_an_answer_names_its_document_once(title, heading, both, encoded, monkeypatch) -> None:
    passage = {"doc_id": "a/b.md", "passage_id": "a/b.md#0", "title": title, "text": "x", "excerpt": "x"}
    answer = Answer(rank=1, score=0.5, **passage, highlights=[], question="", metadata={})
    monkeypatch.setattr("flows.serving.ask.ask", lambda run, questions: [[answer]])
    result = CliRunner().invoke(app, ["search", QUESTION, "--store", str(both.root)])
    assert result.stdout.splitlines()[2] == heading


@pytest.mark.parametrize(
    ("count", "line"),
    [(2, "+2 almost equal: b#0, b#1"), (3, "+3 almost equal: b#0, b#1, ..."), (0, None)],
)
def test_an_answer_names_almost_equal_passages(count, line, both, encoded, monkeypatch) -> None:
    passage = {"doc_id": "a", "passage_id": "a#0", "title": "", "text": "x", "excerpt": "x"}
    more = {"almost_equal": ["b#0", "b#1"][:count], "almost_equal_count": count}
    answer = Answer(rank=1, score=0.5, **passage, highlights=[], question="", metadata={}, **more)
    monkeypatch.setattr("flows.serving.ask.ask", lambda run, questions: [[answer]])
    result = CliRunner().invoke(app, ["search", QUESTION, "--store", str(both.root)])
    lines = [text.strip() for text in result.stdout.splitlines()[3:]]
    assert [text for text in lines if text] == ["x", *([line] if line else [])]


@pytest.mark.parametrize(
    ("metadata", "line"),
    [({"folder": "a", "pages": 0}, "folder a  pages 0"), ({"folder": "", "pages": None, "ending": "md"}, "ending md")],
)
def test_an_answer_shows_the_metadata_that_it_has(metadata, line, both, encoded, monkeypatch) -> None:
    passage = {"doc_id": "doc", "passage_id": "p", "title": "", "text": "text", "excerpt": "text"}
    answer = Answer(rank=1, score=0.5, **passage, highlights=[], question="", metadata=metadata)
    monkeypatch.setattr("flows.serving.ask.ask", lambda session, questions: [[answer]])
    result = CliRunner().invoke(app, ["search", QUESTION, "--store", str(both.root)])
    assert result.stdout.splitlines()[3].strip() == line


def test_the_command_names_the_recipe_and_the_system(both, encoded) -> None:
    arguments = ["search", QUESTION, "--store", str(both.root)]
    assert CliRunner().invoke(app, arguments).stdout.startswith(f"one, dense + BM25: {WAY}\n")
    assert CliRunner().invoke(app, [*arguments, "--by", "dense"]).stdout.startswith("one, dense\n")


def test_text_and_json_say_how_runs_are_fused_and_why(both, encoded) -> None:
    arguments = ["search", QUESTION, "--store", str(both.root), "--by"]
    assert CliRunner().invoke(app, [*arguments, "fusion"]).stdout.startswith(f"one, dense + BM25: {WAY}\n")
    fusion = {"method": "reciprocal_rank", "weight": 0.9, "why": "as requested"}
    for by, expected in {"fusion": fusion, "dense": None, "bm25": None}.items():
        assert json.loads(CliRunner().invoke(app, [*arguments, by, "--json"]).stdout)["fusion"] == expected


def test_the_command_reports_loading_and_answering_separately(both, encoded) -> None:
    arguments = ["search", QUESTION, "--store", str(both.root), "-k", "2"]
    result = CliRunner().invoke(app, arguments)
    assert re.search(r"loaded in [0-9.]+ s, answered in [0-9]+ ms", result.stderr)
    output = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert output["milliseconds"] > 0
    assert output["loading_milliseconds"] > 0
    assert (output["question"], output["k"], len(output["answers"])) == (QUESTION, 2, 2)
    first = output["answers"][0]
    assert [first["excerpt"][start:end] for start, end in first["highlights"]] == ["sorted", "lists", "merge"]


@pytest.mark.parametrize("by", ["bm25", "fusion", "dense"])
def test_inflected_words_are_highlighted_with_and_without_java(by, both, encoded) -> None:
    arguments = ["search", "sorting a list by merges", "--by", by, "-k", "5", "--store", str(both.root), "--json"]
    answers = {a["doc_id"]: a for a in json.loads(CliRunner().invoke(app, arguments).stdout)["answers"]}
    first = answers["doc0"]
    assert [first["excerpt"][start:end] for start, end in first["highlights"]] == ["sorted", "lists", "merge"]


@pytest.mark.parametrize(
    ("question", "by", "lines"),
    [
        ("merge sorted lists now", "dense", []),
        ("merge sorted lists " * 3, "dense", ["cut, of 9: 4"]),
        ("merge sorted lists " * 3, "fusion", ["cut, of 9: 4"]),
        ("merge sorted lists " * 3, "bm25", []),  # BM25 reads the whole question
    ],
)
def test_the_command_reports_that_a_question_is_cut(question, by, lines, both, encoded) -> None:
    arguments = ["search", question, "--by", by, "--store", str(both.root)]
    result = CliRunner().invoke(app, arguments)
    assert [line for line in result.stderr.splitlines() if "cut" in line] == [f"warning: {line}" for line in lines]
    as_json = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(as_json.stdout)["notices"] == lines
    assert "cut" not in as_json.stderr


def test_bm25_reads_the_longest_question_whole() -> None:
    text = "a b" + "c" * (LONGEST - 3)
    assert clean_question(text, {"scores": "weights"}) == text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["  "], "the question is empty"),
        (["a" * 10_001], "the question is too long: 10,001 characters (maximum 10,000)"),
        (["x", "--where", " "], "where: the condition is empty; leave it out to search all passages"),
        (["x", "-k", "0"], "k is 0; the minimum is 1 document"),
        (["x", "-k", "6"], "k is 6, but the collection has 5 passages"),
    ],
)
def test_an_invalid_question_is_one_line(arguments, line, both, encoded) -> None:
    result = CliRunner().invoke(app, ["search", *arguments, "--by", "dense", "--store", str(both.root)])
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == line


def test_an_index_of_another_model_is_one_line(make, encoded) -> None:
    store = make(run_file=False, dense=True)
    (artifact(store, "stage1") / "config.json").write_text(
        "{}"
    )  # that of another model, with vectors of the same length
    with pytest.raises(InputError, match=r"objects/\w+: built with another model than "):
        ids(store, "dense")


def test_a_broken_index_is_one_line(make, encoded) -> None:
    store = make(run_file=False, dense=True)
    index = artifact(store, "index-stage1") / "index"
    whole = index.read_bytes()
    index.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"index-stage1 \(objects/\w+\): index has 64 bytes, not 65; "):
        ids(store, "dense")
    index.write_bytes(whole[:-1] + bytes([whole[-1] ^ 64]))
    with pytest.raises(InputError, match=r"index-stage1 \(objects/\w+\): index was changed; "):
        ids(store, "dense")
    index.write_bytes(whole)
    for file in (artifact(store, "bm25") / "index").glob("segments_*"):
        file.unlink()
    with pytest.raises(InputError, match=r"bm25 \(objects/\w+\): index/segments_\w+ is missing; "):
        ids(store, "bm25")
    with open_session(newest_engine(store, None, "dense"), ["dense", "bm25", "fusion"]) as run:  # as a server
        assert run.ways == ["dense"]
        with pytest.raises(InputError, match=r"by fusion: .*index/segments_\w+ is missing"):
            check_question(run, Question("x", 1, "fusion"))
