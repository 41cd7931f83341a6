"""Names, ids and texts from anywhere: no command prints a control character or markup of theirs."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from unicodedata import category

import pytest
from answering import make_store
from typer.testing import CliRunner

from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.cli.main import app, main

HOSTILE = ["\x1b[31mred", "\x1b]0;title\x07x", "\x9b2Jx", "one\u202eowt", "[/] [red]x", "[bold]x\\", "a\rb", ":cat: x"]
RAW = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def run_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str]:
    """(exit code, output) of the command. The output must have no control character and no traceback."""
    monkeypatch.setattr(sys, "argv", ["cocondenser", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as exit_error:
        main()
    output = "".join(capsys.readouterr())
    assert RAW & set(output) <= {"\n"}
    assert "Traceback" not in output
    return int(str(exit_error.value.code or 0)), output


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_names_of_runs_are_shown_safely(name: str, tmp_path: Path, capsys, monkeypatch) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    nodes = {"ingest": Ref("ingest", "0" * 64, "0" * 64, "0" * 64, store.objects / ("0" * 64), {})}
    record_run(store, name, nodes, {"recipe": {}}, datetime(2026, 11, 1, tzinfo=UTC))
    code, output = run_command(capsys, monkeypatch, "runs", "--store", str(store.root))
    assert code == 0
    listed = CliRunner().invoke(app, ["runs", "--store", str(store.root), "--json"]).stdout
    if any(category(character) == "Cc" for character in name):  # no record of this program has such a name
        assert "no record of a run" in output
        assert json.loads(listed) == []
    else:
        assert "not measured" in output
        assert all(part in output for part in name.replace("\\", "").split() if part.isascii() and part.isprintable())
        assert json.loads(listed)[0]["recipe"] == name
    assert RAW & set(listed) <= {"\n"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store whose passages, ids and titles are hostile."""
    passages = [(f"p{n}", f"doc{n} {text}", f"title {text}", f"lamp {text}") for n, text in enumerate(HOSTILE)]
    return make_store(tmp_path_factory.mktemp("store"), passages, "lamp")


def test_answers_of_a_search_are_shown_safely(hostile: Store, capsys, monkeypatch) -> None:
    arguments = ["search", "lamp", "-k", str(len(HOSTILE)), "--by", "bm25", "--store", str(hostile.root)]
    code, output = run_command(capsys, monkeypatch, *arguments)
    assert code == 0
    assert all(text in output for text in ("title \u241b[31mred", "title [/] [red]x", "title :cat: x"))
    as_json = CliRunner().invoke(app, [*arguments, "--json"]).stdout
    assert RAW & set(as_json) <= {"\n"}
    assert {answer["title"] for answer in json.loads(as_json)["answers"]} == {f"title {text}" for text in HOSTILE}


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_names_of_files_in_errors_are_shown_safely(name: str, tmp_path: Path, capsys, monkeypatch) -> None:
    path = tmp_path / f"{name.replace('/', '-')}.trec"
    path.write_text("q Q0 a 1\n")
    code, output = run_command(capsys, monkeypatch, "evaluate", str(path), "--qrels", str(path))
    assert (code, output.count("\n")) == (2, 1)
    assert run_command(capsys, monkeypatch, "runs", "--store", str(tmp_path / f"no {name}"))[0] == 2
    assert run_command(capsys, monkeypatch, f"--{name}")[0] == 2


@pytest.mark.parametrize("name", HOSTILE[2:5], ids=ascii)
def test_paths_in_a_plan_are_shown_safely(name: str, tmp_path: Path, capsys, monkeypatch) -> None:
    absent = f"ingest.path={json.dumps(str(tmp_path / name))}"
    code, output = run_command(capsys, monkeypatch, "plan", "text", "--store", str(tmp_path / "store"), "--set", absent)
    assert code == 0
    if "[red]" in name:
        assert name in output
