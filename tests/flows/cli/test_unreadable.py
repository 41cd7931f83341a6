"""Stores with parts that cannot be read: every command ends with one line or does not need them."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts import runs
from artifacts.keys import make_key
from artifacts.runs import record_run
from artifacts.store import Request, Store
from flows.cli.main import app, main

COMMANDS = {
    "ls": ["artifacts", "ls"],
    "show": ["artifacts", "show", "stage1"],
    "path": ["artifacts", "path", "stage1"],
    "verify": ["artifacts", "verify"],
    "runs": ["runs"],
    "runs of tiny": ["runs", "--recipe", "tiny"],
    "runs as JSON": ["runs", "--json"],
    "plan": ["plan", "tiny"],
    "search": ["search", "a question"],
    "pack": ["artifacts", "pack", "tiny", "OUT"],
}


@pytest.fixture
def built(store: Store) -> Store:
    """One artifact, and a run that names it as its evaluation."""

    def make(out: Path, checkpoints: Path) -> dict:
        dev = {"systems": {"bm25": {"RR@10": {"mean": 1.0, "low": 1.0, "high": 1.0}}}, "questions": 1}
        metrics = {"winner_on_dev": "bm25", "dense": None, "fusion": None, "labels": {}, "splits": {"dev": dev}}
        (out / "metrics.json").write_text(json.dumps(metrics | {"config": {}}))
        return {}

    key = make_key(stage="finetune", code={}, config={}, sources={}, inputs={}, libraries={})
    ref = store.build(Request(key, node="stage1"), make).ref
    record_run(store, "tiny", {"stage1": ref, "evaluate": ref}, {"recipe": {}})
    return store


@pytest.fixture
def run_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """`run_command(root, "ls")`: the exit code and the text of stderr."""

    def call(root: Path | str, name: str) -> tuple[int, str]:
        arguments = [str(tmp_path / "run.tar.zst") if word == "OUT" else word for word in COMMANDS[name]]
        with pytest.raises(SystemExit) as end:
            main(lambda: app([*arguments, "--store", str(root)]))
        return int(end.value.code or 0), capsys.readouterr().err

    return call


def keys_file(store: Store) -> Path:
    [path] = store.keys.glob("*.json")
    return path


def folder_for_key(store: Store) -> None:
    keys_file(store).unlink()
    (store.keys / f"{'a' * 64}.json").mkdir()


def loop_for_key(store: Store) -> None:
    path = keys_file(store)
    path.unlink()
    path.symlink_to(path.name)


def file_for_keys(store: Store) -> None:
    keys_file(store).unlink()
    store.keys.rmdir()
    store.keys.write_text("")


@pytest.mark.parametrize("damage", [folder_for_key, loop_for_key, file_for_keys])
@pytest.mark.parametrize("name", ["ls", "show", "path", "plan", "pack"])
def test_keys_that_cannot_be_opened_are_reported(
    built: Store, run_command: Callable, name: str, damage: Callable
) -> None:
    damage(built)
    code, line = run_command(built.root, name)
    assert code == 2
    assert "error: " in line
    assert "/keys" in line.replace("\n", "") or "has lost the record of stage1" in " ".join(line.split())
    assert "Traceback" not in line


def test_verify_sets_aside_a_folder_with_the_name_of_a_key(built: Store, run_command: Callable) -> None:
    folder_for_key(built)
    assert run_command(built.root, "verify")[0] == 1
    assert [*built.keys.iterdir()] == []
    assert run_command(built.root, "ls")[0] == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"key": 5}', "[" * 100_000, '{"a":' * 5_000, "\x00\xff", "9" * 5_000]
)
@pytest.mark.parametrize("name", ["ls", "plan", "verify", "runs"])
def test_only_verify_fails_for_an_invalid_key_file(built: Store, run_command: Callable, name: str, text: str) -> None:
    keys_file(built).write_text(text, "latin-1")
    assert run_command(built.root, name)[0] == (1 if name == "verify" else 0)


@pytest.mark.parametrize("change", [{"seconds": -1}, {"created": "yesterday"}, {"metrics": [1]}, {"bytes": "many"}])
@pytest.mark.parametrize("name", ["ls", "plan", "verify"])
def test_only_verify_fails_for_a_record_with_values_of_wrong_types(
    built: Store, run_command: Callable, name: str, change: dict
) -> None:
    path = keys_file(built)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert run_command(built.root, name)[0] == (1 if name == "verify" else 0)


def file_for_objects(store: Store) -> None:
    store.objects.rename(store.root / "elsewhere")
    store.objects.write_text("")


def no_objects(store: Store) -> None:
    store.objects.rename(store.root / "elsewhere")


def loop_for_objects(store: Store) -> None:
    store.objects.rename(store.root / "elsewhere")
    store.objects.symlink_to("objects")


@pytest.mark.parametrize("damage", [file_for_objects, no_objects, loop_for_objects])
@pytest.mark.parametrize("name", COMMANDS)
def test_objects_that_cannot_be_opened_cause_no_traceback(
    built: Store, run_command: Callable, name: str, damage: Callable
) -> None:
    damage(built)
    code, line = run_command(built.root, name)
    verified = 1 if damage is no_objects else 2  # nothing can be verified where `objects` is not a folder
    assert code == {"verify": verified, "search": 2, "pack": 2}.get(name, 0)
    assert "Traceback" not in line


@pytest.mark.parametrize(
    ("what", "number"),
    [("objects", errno.EACCES), ("keys", errno.EACCES), ("runs", errno.EACCES), ("objects", errno.EIO)],
)
@pytest.mark.parametrize("name", COMMANDS)
def test_errors_of_the_system_cause_no_traceback(
    built: Store, run_command: Callable, monkeypatch: pytest.MonkeyPatch, name: str, what: str, number: int
) -> None:
    """A folder without permission, or a disk that fails. Both are simulated, because root may open everything."""
    refused = getattr(built, what)
    for module, function in ((os, "stat"), (os, "listdir"), (os, "scandir"), (os, "open")):
        monkeypatch.setattr(module, function, refusing(getattr(module, function), refused, number))
    monkeypatch.setattr("io.open", refusing(open, refused, number))
    code, line = run_command(built.root, name)
    assert code in (0, 1, 2)
    assert "Traceback" not in line
    if what == "keys" and name in ("ls", "show", "path", "plan", "pack"):
        assert code == 2
        assert "/keys" in line.replace("\n", "")


def refusing(function: Callable, folder: Path, number: int) -> Callable:
    def call(path, *arguments, **options):
        if (isinstance(path, str | Path) and Path(path) == folder) or folder in Path(str(path)).parents:
            raise OSError(number, os.strerror(number), str(path))
        return function(path, *arguments, **options)

    return call


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": true}', '{"format": 0}', "[" * 100_000, '{"format": "1"}'])
@pytest.mark.parametrize("name", ["ls", "plan"])
def test_an_invalid_format_file_is_reported(built: Store, run_command: Callable, name: str, text: str) -> None:
    built.format.write_text(text)
    code, line = run_command(built.root, name)
    assert code == 2
    assert "not the format file of a store" in " ".join(line.split())


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"name": "x", "nodes": {"a": 1}}'])
@pytest.mark.parametrize("command", ["runs", "runs of tiny", "runs as JSON"])
def test_runs_reports_the_records_that_it_cannot_read(
    built: Store, run_command: Callable, command: str, text: str
) -> None:
    (built.runs / "20000101T000000.000000Z-x.json").write_text(text)
    code, line = run_command(built.root, command)
    assert code == 0
    assert "20000101T000000.000000Z-x.json: no record of a run" in line.replace("\n", " ")


def test_runs_reads_each_record_once(built: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (built.runs / "20000101T000000.000000Z-x.json").write_text("{}")
    read: list[Path] = []
    real = runs.read_run
    monkeypatch.setattr(runs, "read_run", lambda store, path: read.append(path) or real(store, path))
    readable, unreadable = runs.runs_and_unreadable(built)
    assert [run.name for run in readable] == ["tiny"]
    assert unreadable == [built.runs / "20000101T000000.000000Z-x.json"]
    assert sorted(read) == sorted(built.runs.iterdir())


@pytest.mark.parametrize("name", [b"/tmp/st\xff", b"/tmp/\xe4\xf6\xfc/store", b"st\xc3"])
@pytest.mark.parametrize("command", [*COMMANDS])
def test_a_store_whose_path_is_not_utf8_is_refused(run_command: Callable, name: bytes, command: str) -> None:
    code, line = run_command(os.fsdecode(name), command)
    assert code == 2
    assert "the path is not UTF-8" in " ".join(line.split())
