"""`cocondenser export`: which run, which model, which parts, and what is refused before anything is written."""

import errno
import json
import os
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from encoders import ENCODER
from exported import Kind, make_run, make_store
from typer.testing import CliRunner

from artifacts import objects
from artifacts.errors import StoreError
from artifacts.runs import record_run, runs
from artifacts.store import Store
from flows.cli.main import app
from flows.runs.export import export_run
from pipeline.errors import InputError


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> dict[str, Path]:
    return make_run(tmp_path_factory.mktemp("run") / "run", Kind())


@pytest.fixture
def store(nodes, tmp_path) -> Store:
    return make_store(nodes, tmp_path / "store", ENCODER)


def call(store: Store, out: Path, *, recipe=None, model=None, only=("run",), overwrite=False):
    return export_run(store, out, recipe, model, only, overwrite)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_part_of_a_run_is_exported(store, tmp_path):
    result = CliRunner().invoke(app, ["export", str(tmp_path / "a/b/out"), "--store", str(store.root)])
    assert result.exit_code == 0, result.output
    out = tmp_path / "a/b/out"
    assert names_in(out) == ["README.md", "export.json", "index", "model", "onnx", "run"]
    assert names_in(tmp_path / "a/b") == ["out"]
    description = json.loads((out / "export.json").read_text())
    assert (description["recipe"], description["model"], description["parts"]) == (
        "one",
        "stage1",
        ["model", "onnx", "run", "index"],
    )
    [run] = runs(store)
    assert description["artifacts"] == {node: run.nodes[node].digest for node in description["artifacts"]}
    assert "2 of 120 passages differently" in " ".join(result.stderr.split())
    for text in ("stage1 of one is in", "model.int8.onnx: ", "cosine 0.9", "MRR@10, 20 of dev", "float32"):
        assert text in result.stdout
    assert not [path for path in out.rglob("*") if path.name == "manifest.json" or path.is_symlink()]


def test_json_describes_the_exported_parts(store, tmp_path):
    result = CliRunner().invoke(
        app, ["export", str(tmp_path / "out"), "--only", "index", "--only", "run", "--json", "--store", str(store.root)]
    )
    output = json.loads(result.stdout)
    assert (output["recipe"], output["model"], output["parts"]) == ("one", "stage1", ["run", "index"])
    assert output["files"]["index/docid"] == (tmp_path / "out/index/docid").stat().st_size
    assert names_in(tmp_path / "out") == ["README.md", "export.json", "index", "run"]
    assert output["onnx"] is None


NEEDED = {
    "model": ["stage1", "ingest", "tokens"],
    "onnx": ["stage1", "ingest", "tokens"],
    "run": ["ingest", "search-stage1", "bm25"],
    "index": ["index-stage1"],
    "vectors": ["index-stage1", "ingest"],
}


@pytest.mark.parametrize(
    ("part", "example"),
    [
        ("model", "what's alpha's beta?"),
        pytest.param("onnx", "what's alpha's beta?", marks=pytest.mark.slow),
        ("run", "what's alpha's beta?"),
        ("index", "what's alpha's beta?"),
        ("vectors", None),
        ("model", None),
        ("index", None),
    ],
)
def test_a_part_needs_no_other(store, tmp_path, part, example):
    [run] = runs(store)
    details = {"recipe": {**run.details["recipe"], "example_question": example}}
    record_run(store, "one", run.nodes, details)
    for node, ref in run.nodes.items():
        if node not in (*NEEDED[part], "evaluate"):
            shutil.rmtree(ref.path)
    done = call(store, tmp_path / "out", only=[part])
    assert names_in(tmp_path / "out") == sorted(["README.md", "export.json", part])
    assert done.parts == [part]
    artifacts = json.loads((tmp_path / "out/export.json").read_text())["artifacts"]
    assert sorted(artifacts) == sorted(NEEDED[part])
    if part == "onnx":
        assert done.onnx is not None
        assert done.onnx["retrieval"] is None  # no index to measure it in


def test_two_exports_of_a_run_have_equal_bytes(store, tmp_path):
    for name in ("a", "b"):
        call(store, tmp_path / name, only=["model", "run", "index"])
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) > 15
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path


def test_a_second_export_replaces_the_first_only_on_request(store, tmp_path):
    call(store, tmp_path / "out")
    with pytest.raises(InputError, match="not empty; --overwrite"):
        call(store, tmp_path / "out")
    call(store, tmp_path / "out", only=["index"], overwrite=True)
    assert names_in(tmp_path / "out") == ["README.md", "export.json", "index"]
    (tmp_path / "out/index/notes.txt").touch()
    refused(
        store, tmp_path / "out", "out/index/notes.txt: not a file of the earlier export", only=["run"], overwrite=True
    )


def test_a_link_to_a_folder_stays_a_link(store, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for overwrite in (False, True):
        call(store, tmp_path / "link", overwrite=overwrite)
    assert (tmp_path / "link").is_symlink()
    assert names_in(tmp_path) == ["link", "out", "store"]


def test_the_newest_finished_run_is_taken(store, tmp_path):
    [run] = runs(store)
    unfinished = {node: ref for node, ref in run.nodes.items() if node != "evaluate"}
    record_run(store, "two", unfinished, run.details)
    assert call(store, tmp_path / "out").recipe == "one"
    record_run(store, "three", run.nodes, run.details)
    assert call(store, tmp_path / "out3").recipe == "three"
    assert call(store, tmp_path / "out1", recipe="one").recipe == "one"


@pytest.mark.slow
def test_another_model_is_exported_without_the_parts_that_the_run_lacks(store, tmp_path):
    [run] = runs(store)
    record_run(store, "more", {**run.nodes, "initial": run.nodes["stage1"]}, run.details)
    done = call(store, tmp_path / "out", model="pretrained", only=[])
    assert (done.model, done.parts) == ("initial", ["model", "onnx"])
    assert done.onnx is not None
    assert done.onnx["retrieval"] is None
    with pytest.raises(InputError, match="--only index: the run of more has none for initial"):
        call(store, tmp_path / "other", model="initial", only=["index"])


# What is refused


def refused(store: Store, out: Path, line: str, error: type[Exception] = InputError, **arguments) -> None:
    before = names_in(out.parent)
    with pytest.raises(error, match=line) as raised:
        call(store, out, **arguments)
    assert "\n" not in str(raised.value)
    assert names_in(out.parent) == before


def test_a_missing_run_is_refused(tmp_path):
    none, out = Store(tmp_path / "none"), tmp_path / "out"
    refused(none, out, "none: no finished run to export; `cocondenser run pydocs-small`")
    refused(none, out, "no finished run of tiny to export", recipe="tiny")
    refused(none, out, "no recipe 'tinny'", recipe="tinny")


def test_a_missing_node_or_a_node_without_a_model_is_refused(store, tmp_path):
    out = tmp_path / "out"
    refused(store, out, r"--model stage: no such node in the run of one \(did you mean stage1\?\)", model="stage")
    line = "--model ingest: has no retrieval model; these nodes of the run have one: stage1$"
    refused(store, out, line, model="ingest")
    refused(store, out, "--only modle: no such part; the parts are model, onnx, run, index, vectors", only=["modle"])


def test_a_model_that_no_index_can_search_is_refused(store, tmp_path):
    [run] = runs(store)
    path = tmp_path / "learned"
    shutil.copytree(run.nodes["stage1"].path, path, ignore=shutil.ignore_patterns("manifest.json"))
    (path / "scorer.safetensors").touch()
    digest, _ = objects.seal(path)
    path.rename(store.objects / digest)
    ref = replace(run.nodes["stage1"], digest=digest, path=store.objects / digest)
    record_run(store, "two", {**run.nodes, "stage2": ref}, run.details)
    refused(store, tmp_path / "out", "--model stage2: has no retrieval model", model="stage2")


def test_a_type_of_vectors_without_the_vectors_is_refused(store, tmp_path):
    arguments = ["export", str(tmp_path / "out"), "--float16", "--store", str(store.root)]
    result = CliRunner().invoke(app, arguments)
    assert "--float16: only the part vectors has this option; add --only vectors" in str(result.exception)
    assert names_in(tmp_path) == ["store"]


@pytest.mark.parametrize("damage", ["changed", "short", "gone"])
def test_a_damaged_artifact_is_refused(store, tmp_path, damage):
    [run] = runs(store)
    path = run.nodes["index-stage1"].path / "index"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    if damage == "gone":
        shutil.rmtree(path.parent)
    else:
        path.write_bytes(data if damage == "changed" else data[:100])
    line = r"store: index-stage1 \(objects/\w+\): .*(changed|bytes|missing).*; .*`cocondenser run one` builds it again$"
    refused(store, tmp_path / "out", line, only=["index"])
    call(store, tmp_path / "out")  # the files of the part `run` are not damaged


def test_an_evaluation_that_cannot_be_read_is_refused(store, tmp_path):
    [run] = runs(store)
    path = run.nodes["evaluate"].path / "metrics.json"
    path.write_bytes(path.read_bytes()[:50])
    refused(store, tmp_path / "out", r"metrics\.json: cannot be read \(.*`cocondenser artifacts verify` ")


def test_a_missing_evaluation_is_refused(store, tmp_path):
    [run] = runs(store)
    shutil.rmtree(run.nodes["evaluate"].path)
    line = "store: the run of one has lost evaluate; `cocondenser run one` builds it again$"
    refused(store, tmp_path / "out", line)


def test_a_folder_inside_the_store_is_refused(store, tmp_path):
    line = "out: inside the store .*; choose a folder outside"
    refused(store, store.root / "out", line, StoreError)
    (tmp_path / "link").symlink_to(store.root)
    refused(store, tmp_path / "link" / "out", line, StoreError)


def test_missing_extra_packages_are_reported(store, tmp_path, monkeypatch):
    monkeypatch.setattr("flows.runs.export.find_spec", lambda name: None if name == "onnxscript" else find_spec(name))
    line = r"onnx/ needs onnxscript: `pip install 'cocondenser\[export\]'`; or export the rest: --only"
    refused(store, tmp_path / "out", line, only=[])
    call(store, tmp_path / "out", only=["model"])


def test_a_folder_that_cannot_be_written_is_refused(store, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"/file: not a folder$"):
        call(store, tmp_path / "file" / "out")


def test_a_path_that_is_not_utf_8_is_refused(store, tmp_path):
    refused(store, tmp_path / "\udcff", r"/\\udcff: the path is not UTF-8", StoreError)


def test_too_little_disk_space_is_reported_before_writing(store, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=10))
    refused(store, tmp_path / "out", r"B needed, but 10 B free$", only=["index"])


def test_a_disk_that_fills_during_the_export_leaves_no_files(store, tmp_path, monkeypatch):
    def full(*arguments) -> None:
        (arguments[1] / "half").parent.mkdir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pipeline.export.files.write_index", full)
    refused(store, tmp_path / "out", "no space left", StoreError, only=["model", "index"])


@pytest.mark.slow
def test_a_run_of_the_real_flow_is_exported(tiny_run, call_cli, tmp_path):
    store, _ = tiny_run
    result = call_cli("export", str(tmp_path / "out"), "--json", store=store)
    assert result.returncode == 0, result.stderr
    output = json.loads(result.stdout)
    assert (output["model"], output["parts"]) == ("stage2", ["model", "onnx", "run", "index"])
    metrics = json.loads(next((store / "objects").glob("*/metrics.json")).read_text())
    measured = output["onnx"]["retrieval"]
    for name in ("RR@10", "nDCG@10"):
        known = metrics["splits"][measured["split"]]["systems"]["stage2"][name]["mean"]
        assert measured["torch"][name] == pytest.approx(known, abs=1e-6)
        assert measured["float32"][name] == pytest.approx(known, abs=0.002)
        assert 0 < measured["int8"][name] < 1
    assert output["onnx"]["files"]["model.int8.onnx"]["least_cosine"] > 0.99
    again = call_cli("export", str(tmp_path / "out"), store=store)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("error: ")
    assert again.stderr.count("\n") == 1
