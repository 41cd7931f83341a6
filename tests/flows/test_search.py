"""What `cocondenser search` asks of a run, and shows of a passage."""

import json
import subprocess
import sys
from collections.abc import Callable

import faiss
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from encoders import ENCODER
from machines import make_machine
from searched import CONFIG, build, write_collection
from typer.testing import CliRunner

from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.cli import app
from flows.search import Answer, excerpt, newest_engine, questions, search, words_of
from pipeline import runs
from pipeline.errors import InputError
from pipeline.evaluate import EvaluateConfig, evaluate
from pipeline.fusion import Choice, fuse_lists
from pipeline.work import Work, silent

LONG = "\n".join(f"line {n}" for n in range(20))


def test_a_search_does_not_wait_for_prefect() -> None:
    """Its import takes as long as all else of a search but the model."""
    code = "import sys, flows.search; print([m for m in ('prefect', 'torch', 'transformers') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "[]", ended.stderr


def test_a_short_passage_is_shown_as_it_is() -> None:
    assert excerpt("    a\n\n  b", ["b"], most=3) == "    a\n\n  b"


def test_of_a_long_one_the_lines_that_hold_the_most_of_the_words() -> None:
    text = LONG.replace("line 12", "    Merge\n      sorted lists")
    assert excerpt(text, words_of("merge two sorted lists"), most=2) == "…\nMerge\n  sorted lists\n…"


def test_its_beginning_where_none_holds_any() -> None:
    assert excerpt(LONG, ["zebra"], most=2) == "line 0\nline 1\n…"
    assert excerpt(LONG, [], most=2) == "line 0\nline 1\n…"


def test_its_end_has_no_ellipsis_after_it() -> None:
    assert excerpt(LONG, ["19"], most=2) == "…\nline 18\nline 19"


def test_a_passages_question_is_the_first_that_it_answers(tmp_path) -> None:
    qrels = [("q1", "a", 0), ("q2", "a", 1), ("q3", "a", 2), ("q3", "b", 1)]
    rows = [{"query_id": q, "passage_id": p, "relevance": grade} for q, p, grade in qrels]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "qrels.parquet")
    texts = [{"query_id": f"q{n}", "text": f"question {n}"} for n in (1, 2, 3)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(texts), tmp_path / "queries.parquet")
    assert questions(tmp_path, ["a", "b", "c"]) == {"a": "question 2", "b": "question 3"}
    assert questions(tmp_path, ["c"]) == {}


# A run in a store, to be asked by dense retrieval, BM25 or both

PASSAGES = ["sorted lists merge", "merge branches", "a list that is sorted", "nothing of it", "merge sorted heaps"]
QUESTION = "merge sorted lists"
DENSE = [0.1, 0.2, 0.9, 0.5, 0.3]
"""Inner product of each passage with any question; the question's vector is made up, all else is as in a real run."""
EVALUATE = EvaluateConfig(
    relevance=1,
    systems={},
    fusions=[],
    fusion_methods=["reciprocal_rank"],
    fusion_weights=[0.9],
    reciprocal_k=60,
    bootstrap_samples=100,
    seed=0,
    answers=1,
)
Make = Callable[..., Store]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """make(run_file=True, dense=False): a store with one evaluated run."""

    def store_of(run_file: bool, dense: bool) -> Store:
        store = Store(tmp_path_factory.mktemp("store"))
        objects = {name: store.objects / name for name in ("ingest", "bm25", "evaluate", "stage1", "index-stage1")}
        store.objects.mkdir(parents=True)
        passages = [(f"p{n}", f"doc{n}", f"title {n}", text) for n, text in enumerate(PASSAGES)]
        ingest = write_collection(objects["ingest"], passages, [("q", "dev", QUESTION)], [("dev", "q", "p0", 1)])
        given = store.root / "run"
        given.write_text("q p0 1\n")
        build(ingest, objects["bm25"], CONFIG.model_copy(update={"run": given if run_file else None}), workers=1)
        if dense:
            objects["stage1"].mkdir()  # the model: its encoding is made up
            index = faiss.IndexFlatIP(1)
            index.add(np.array(DENSE, np.float32)[:, None])
            objects["index-stage1"].mkdir()
            faiss.write_index(index, str(objects["index-stage1"] / "index"))
            (objects["index-stage1"] / "docid").write_text("\n".join(f"p{n}" for n in range(len(PASSAGES))))
            found = store.root / "search"
            found.mkdir()
            best = sorted(range(len(PASSAGES)), key=lambda n: -DENSE[n])
            with runs.writer(found) as write:
                write("dev", ["q"] * len(best), [f"p{n}" for n in best], np.array(DENSE)[best])
        objects["evaluate"].mkdir()
        work = Work(objects["evaluate"], store.root, make_machine(), silent)
        evaluate(EVALUATE, ingest, objects["bm25"], work, **({"stage1": found} if dense else {}))
        nodes = {n: Ref(n, n, n, n, path, {}) for n, path in objects.items() if path.exists()}
        depths = {"search": {"depth": 10}, "bm25": {"depth": 10}, "evaluate": {"reciprocal_k": 60}}
        record_run(store, "one", nodes, {"recipe": {**depths, "encoder": ENCODER.model_dump()}})
        return store

    return store_of


@pytest.fixture(scope="module")
def both(make: Make) -> Store:
    return make(run_file=False, dense=True)


@pytest.fixture(scope="module")
def dense_beside_a_run_file(make: Make) -> Store:
    return make(run_file=True, dense=True)


@pytest.fixture
def encoded(monkeypatch) -> None:
    monkeypatch.setattr("pipeline.search.encode_text", lambda *given: np.ones((1, 1), np.float32))


def ids(store: Store, by) -> list[str]:
    return [answer.passage_id for answer in search(newest_engine(store, None, by), QUESTION, 3)]


def test_each_way_of_asking(both, encoded) -> None:
    assert ids(both, "dense") == ["p2", "p3", "p4"]
    assert ids(both, "bm25")[0] == "p0"  # the one with all three words
    from pipeline.bm25 import Searcher

    with Searcher(both.objects / "bm25") as searcher:
        words = dict(searcher.search(QUESTION, 10))
    joined = fuse_lists(words, {f"p{n}": s for n, s in enumerate(DENSE)}, Choice("reciprocal_rank", 0.9), 60)
    assert ids(both, "fusion") == [passage_id for passage_id, _ in joined[:3]]
    assert newest_engine(both, None).how == "fusion"  # it puts p0 first on dev, which is last for the dense run


def test_words_that_stand_nowhere_find_nothing(both) -> None:
    assert search(newest_engine(both, None, "bm25"), "zebra", 3) == []


def test_the_command_says_that_it_found_nothing(both) -> None:
    arguments = ["search", "the of and", "--by", "bm25", "--store", str(both.root)]
    assert CliRunner().invoke(app, arguments).stdout == "one, BM25\n\nnothing found\n"
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["answers"] == []


@pytest.mark.parametrize("by", ["dense", "bm25"])
def test_bytes_that_are_no_utf_8_are_asked_as_question_marks(by, both, monkeypatch) -> None:
    asked: list[bytes] = []

    def encode_text(checkpoint, texts, config) -> np.ndarray:
        asked.extend(text.encode() for text in texts)
        return np.ones((1, 1), np.float32)

    monkeypatch.setattr("pipeline.search.encode_text", encode_text)
    found = search(newest_engine(both, None, by), "\udcff\udcfe branches", 1)
    assert [answer.passage_id for answer in found] == [{"dense": "p2", "bm25": "p1"}[by]]
    assert asked == ([b"?? branches"] if by == "dense" else [])


def test_a_run_without_fusion(make, encoded) -> None:
    store = make(run_file=False, dense=False)
    with pytest.raises(InputError, match="--by fusion: the run of one joined no dense run with BM25"):
        newest_engine(store, None, "fusion")
    with pytest.raises(InputError, match="--by dense: the run of one has no dense run"):
        newest_engine(store, None, "dense")
    assert ids(store, None)[0] == "p0"


def test_a_run_file_answers_no_question_so_the_dense_run_does(dense_beside_a_run_file, encoded) -> None:
    store = dense_beside_a_run_file
    engine = newest_engine(store, None)
    assert engine.metrics["winner_on_dev"] == "fusion"
    assert (engine.how, engine.instead) == ("dense", True)
    assert ids(store, None) == ids(store, "dense") == ["p2", "p3", "p4"]
    assert not newest_engine(store, None, "dense").instead
    for by in ("fusion", "bm25"):
        with pytest.raises(InputError, match="the first stage came as a run file"):
            ids(store, by)


def test_the_command_says_that_it_does(dense_beside_a_run_file, encoded) -> None:
    arguments = ["search", QUESTION, "--store", str(dense_beside_a_run_file.root)]
    shown = CliRunner().invoke(app, arguments)
    assert "by dense: a fusion was best on dev, but its first stage is a run file" in shown.stderr
    assert "one, dense" in shown.stdout
    as_json = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(as_json.stdout)["by"] == "dense"
    quiet = CliRunner().invoke(app, [*arguments, "--by", "dense"])
    assert quiet.stderr.strip() in ("", "Loading ...")


@pytest.mark.parametrize(
    ("title", "heading"),
    [("Notes", " 1  Notes  a/b.md  0.5000"), ("", " 1  a/b.md  0.5000"), ("a/b.md", " 1  a/b.md  0.5000")],
)
def test_an_answer_names_its_document_once(title, heading, both, monkeypatch) -> None:
    found = Answer(rank=1, score=0.5, doc_id="a/b.md", passage_id="a/b.md#0", title=title, text="x", question="")
    monkeypatch.setattr("flows.search.search", lambda *given: [found])
    shown = CliRunner().invoke(app, ["search", QUESTION, "--store", str(both.root)])
    assert shown.stdout.splitlines()[2] == heading


def test_the_command_names_what_it_asks(both, encoded) -> None:
    arguments = ["search", QUESTION, "--store", str(both.root)]
    assert CliRunner().invoke(app, arguments).stdout.startswith("one, dense + BM25\n")
    assert CliRunner().invoke(app, [*arguments, "--by", "dense"]).stdout.startswith("one, dense\n")
