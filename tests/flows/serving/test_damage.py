"""A finished run with a missing or damaged file: search and its server name it and the fix in one line."""

import hashlib
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answering import artifact, make_store, write_model
from typer.testing import CliRunner

from artifacts.errors import StoreError
from artifacts.runs import readable_runs, record_run, runs
from artifacts.store import Store
from flows.cli.main import app
from flows.runs import evaluated
from flows.serving import session
from flows.serving.engine import check_whole, newest_engine
from flows.serving.session import open_session
from pipeline.errors import InputError

TEXTS = ["sorted lists merge", "merge branches", "a list that is sorted", "nothing of it", "merge sorted heaps"]
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "noise": lambda content: b"{\xff\x00" * 9,
}
FILES = [
    "bm25/bm25.json",
    "bm25/index/segments_1",
    "evaluate/metrics.json",
    "ingest/passages.parquet",
    "ingest/queries.parquet",
    "ingest/qrels.parquet",
    "index-stage1/index.json",
    "index-stage1/index",
    "stage1/config.json",
    "stage1/model.safetensors",
    "stage1/tokenizer.json",
    "stage1/1_Pooling/config.json",
    "stage1/modules.json",
]


def file(store: Store, name: str) -> Path:
    """`NODE/FILE` of the newest run."""
    node, _, inner = name.partition("/")
    return artifact(store, node) / inner


def flip(path: Path, draws: random.Random) -> None:
    """Flips one bit."""
    content = bytearray(path.read_bytes())
    content[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
    path.write_bytes(content)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    checkpoint = write_model(folder, sorted({word for text in TEXTS for word in text.split()}))
    passages = [(f"p{n}", f"doc{n}", f"title {n}", text) for n, text in enumerate(TEXTS)]
    vectors_ND = np.random.default_rng(0).standard_normal((len(TEXTS), 32)).astype(np.float32)
    return make_store(folder / "store", passages, "merge sorted lists", vectors_ND, checkpoint).root


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Store:
    return Store(shutil.copytree(whole, tmp_path / "store"))


def line_of_search(store: Store) -> str:
    result = CliRunner().invoke(app, ["search", "merge lists", "--store", str(store.root)])
    assert isinstance(result.exception, InputError | StoreError), result.exception
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_an_undamaged_run_answers(copy: Store) -> None:
    result = CliRunner().invoke(app, ["search", "merge lists", "--store", str(copy.root)])
    assert result.exit_code == 0, result.exception
    assert "one, dense + BM25" in result.stdout


@pytest.mark.parametrize("damage", ["gone", *DAMAGE])
@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_damaged_file_of_an_artifact_is_reported(copy: Store, name: str, damage: str) -> None:
    path = file(copy, name)
    before = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(DAMAGE[damage](before))
    line = line_of_search(copy)
    node, _, inner = name.partition("/")
    if name == "evaluate/metrics.json":  # it says which of the other files are read
        assert line.startswith(f"{path}: ")
    else:
        now = "is missing" if damage == "gone" else f"has {path.stat().st_size} bytes, not {len(before)}"
        assert line.startswith(f"{copy.root}: {node} (objects/{artifact(copy, node).name[:12]}): {inner} {now}; ")
    assert "; `cocondenser artifacts verify` sets what is damaged aside, and `cocondenser run " in line


def test_a_flipped_bit_of_any_file_is_reported(copy: Store) -> None:
    """Tables, weights, JSON, the run, Lucene's index and FAISS's: each is named by the search, and then by verify."""
    draws, [run] = random.Random(0), runs(copy)
    kinds = set()
    for node, ref in run.nodes.items():
        for path in [path for path in ref.path.rglob("*") if path.is_file() and path.stat().st_size]:
            whole = path.read_bytes()
            flip(path, draws)
            inner = path.relative_to(ref.path).as_posix()
            with pytest.raises(InputError, match=rf"{node} \(objects/\w+\): {re.escape(inner)} was changed; "):
                check_whole(run, node)
            assert any(f"{inner} was changed" in line for line in verify_lines(copy, ref.path))
            path.write_bytes(whole)
            check_whole(run, node)
            kinds.add(path.suffix or path.name)
    assert kinds >= {".parquet", ".safetensors", ".json", ".trec", ".fdx", "index", "docid"}


def verify_lines(store: Store, folder: Path) -> list[str]:
    """What `verify` reports of an object, which stays in its place."""
    problem = store.inspect(folder.name, deep=True)
    return [problem] if problem else []


@pytest.mark.parametrize("name", ["ingest/passages.parquet", "stage1/model.safetensors", "index-stage1/docid"])
def test_the_server_refuses_a_flipped_bit(copy: Store, name: str) -> None:
    flip(file(copy, name), random.Random(1))
    engine = newest_engine(copy, None)
    with pytest.raises(InputError, match=r"\(objects/\w+\): .* was changed; `cocondenser artifacts verify`"):
        open_session(engine, engine.ways(), often=True).__enter__()


def test_a_flipped_digit_of_a_measure_is_reported(copy: Store) -> None:
    path = file(copy, "evaluate/metrics.json")
    text = path.read_text()
    figure = re.search(r"0\.\d\d", text)
    assert figure
    path.write_text(text[: figure.end() - 1] + str(int(text[figure.end() - 1]) ^ 1) + text[figure.end() :])
    with pytest.raises(InputError, match=r"metrics\.json: was changed; `cocondenser artifacts verify`"):
        newest_engine(copy, None)


@pytest.mark.parametrize(
    ("inner", "damage", "problem"),
    [
        ("manifest.json", Path.unlink, "manifest.json is missing"),
        ("manifest.json", lambda path: path.write_bytes(path.read_bytes() + b"\n"), "manifest.json was changed"),
        ("per_query.parquet", Path.unlink, "per_query.parquet is missing"),
    ],
)
def test_a_damaged_evaluation_is_not_compared(copy: Store, inner: str, damage: Any, problem: str) -> None:
    """Any of its files may be damaged: without the manifest nothing is known about the others."""
    assert evaluated.find_evaluated(copy, "one").run.name == "one"
    damage(file(copy, f"evaluate/{inner}"))
    with pytest.raises(InputError, match=rf"evaluate \(objects/\w+\): {problem}; `cocondenser artifacts verify`"):
        evaluated.find_evaluated(copy, "one")


@pytest.mark.parametrize("lost", [["stage1"], ["ingest", "index-stage1", "bm25"], ["evaluate"]])
def test_missing_artifacts_are_reported(copy: Store, lost: list[str]) -> None:
    for node in lost:
        shutil.rmtree(artifact(copy, node))
    hint = f"`cocondenser run one` builds {'it' if len(lost) == 1 else 'them'} again"
    assert line_of_search(copy) == f"{copy.root}: the run of one has lost {', '.join(lost)}; {hint}"


def test_an_older_run_answers_for_one_that_has_lost_an_artifact(copy: Store) -> None:
    [run] = runs(copy)
    elsewhere = {**run.nodes, "stage1": replace(run.nodes["stage1"], digest="gone")}
    record_run(copy, "two", elsewhere, run.details)
    assert newest_engine(copy, None).run.name == "one"
    with pytest.raises(InputError, match="the run of two has lost stage1; `cocondenser run two` builds it again"):
        newest_engine(copy, "two")


def test_a_node_that_a_run_never_had_is_not_reported_as_lost(copy: Store) -> None:
    [run] = runs(copy)
    record_run(copy, "two", {node: ref for node, ref in run.nodes.items() if node != "bm25"}, run.details)
    with pytest.raises(InputError, match="no finished run of two to search in"):
        newest_engine(copy, "two", "bm25")


@pytest.mark.parametrize("name", ["ingest/queries.parquet", "ingest/passages.parquet", "bm25/bm25.json"])
def test_the_server_reports_an_unreadable_file(copy: Store, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "check_whole", lambda *_: None)
    file(copy, name).write_bytes(b"noise")
    engine = newest_engine(copy, None)
    inner = name.partition("/")[2]
    with pytest.raises(InputError, match=rf"objects/\w+/{inner}: cannot be read .*; `cocondenser artifacts verify`"):
        open_session(engine, engine.ways(), often=True).__enter__()


def test_a_dense_server_works_without_a_damaged_first_stage(copy: Store) -> None:
    file(copy, "bm25/bm25.json").write_bytes(b"noise")
    engine = newest_engine(copy, None, "dense")
    with open_session(engine, engine.ways(), often=True) as run:
        assert run.ways == ["dense"]
        assert "bm25.json has 5 bytes" in run.problems["bm25"]


def test_a_missing_folder_of_lucene_is_reported(copy: Store) -> None:
    shutil.rmtree(file(copy, "bm25/index"))
    line = line_of_search(copy)
    assert "bm25 (objects/" in line
    assert "): index/" in line
    assert " is missing; `cocondenser artifacts verify`" in line


def test_a_changed_byte_of_lucenes_index_is_reported(copy: Store) -> None:
    """The change would alter a score, and Lucene checks its checksums only on request."""
    [lengths] = file(copy, "bm25/index").glob("*.nvd")
    flip(lengths, random.Random(2))
    with pytest.raises(InputError, match=rf"bm25 \(objects/\w+\): index/{lengths.name} was changed; "):
        open_session(newest_engine(copy, None)).__enter__()


def test_every_file_is_hashed_once(copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening what the store has hashed reads no index a second time."""
    hashed: Counter[Path] = Counter()
    real = hashlib.file_digest

    def digest(opened: Any, name: str) -> Any:
        hashed[Path(opened.name)] += 1
        return real(opened, name)

    monkeypatch.setattr(hashlib, "file_digest", digest)
    for path in (path for path in copy.objects.rglob("*") if path.is_file()):
        os.utime(path, ns=(0, 0))
    monkeypatch.setattr("artifacts.objects.SETTLED_NS", -(10**10))
    engine = newest_engine(copy, None)
    with open_session(engine, engine.ways(), often=True) as run:
        assert run.ways == ["fusion", "dense", "bm25"]
    for node in ("index-stage1", "bm25", "ingest"):
        paths = [path for path in artifact(copy, node).rglob("*") if path.is_file() and path.name != "manifest.json"]
        assert {node: {hashed[path] for path in paths}} == {node: {1}}


def test_an_index_without_index_json_is_reported(copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "check_whole", lambda *_: None)
    file(copy, "index-stage1/index.json").unlink()
    engine = newest_engine(copy, None)
    with pytest.raises(InputError, match=r"index\.json: no such file: lost, or the index has an older format"):
        open_session(engine).__enter__()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"{\xff"])
def test_an_unreadable_record_of_a_run_is_reported(copy: Store, content: bytes) -> None:
    """It may be the record of the requested run: an older run must not answer instead without a message."""
    [run] = runs(copy)
    path = record_run(copy, "two", run.nodes, run.details)
    path.write_bytes(content)
    line = f"{path}: not a readable record of a run; remove it to reach the runs before it"
    assert line_of_search(copy) == line
    path.unlink()
    assert newest_engine(copy, None).run.name == "one"


def test_an_unreadable_record_of_another_recipe_is_ignored(copy: Store) -> None:
    (copy.runs / "21000101T000000.000000Z-another-one.json").write_bytes(b"")
    assert newest_engine(copy, "one").run.name == "one"
    with pytest.raises(StoreError, match=r"another-one\.json: not a readable record of a run"):
        newest_engine(copy, "another-one")


def test_a_record_that_is_removed_meanwhile_is_skipped(copy: Store) -> None:
    [run] = runs(copy)
    newer = record_run(copy, "two", run.nodes, run.details)
    older = copy.runs / "20010101T000000.000000Z-old.json"
    older.write_bytes(b"")
    readable = readable_runs(copy)
    assert next(readable).name == "two"
    older.unlink()
    newer.unlink()
    assert [record.name for record in readable] == ["one"]


def test_an_unreadable_record_older_than_the_run_that_answers_is_ignored(copy: Store) -> None:
    (copy.runs / "20010101T000000.000000Z-old.json").write_bytes(b"")
    assert newest_engine(copy, None).run.name == "one"
