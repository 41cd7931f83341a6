"""Paths as users write them: `~`, relative paths, which count from their file, and paths in messages."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from artifacts.store import Store
from flows import current_folder_last
from flows.ablations import file
from flows.ablations.ablation import Ablation, cells
from flows.ablations.choice import Choice, apply_choice
from flows.cli.main import app
from flows.dag import nodes
from flows.graph import preflight
from flows.graph.selection import store_folder
from flows.recipes import yaml_layers
from flows.recipes.recipe import resolve, with_settings
from flows.runs.find_collection import find_collection
from flows.runs.find_model import find_model
from flows.sentences import recipe as sentences
from pipeline.data.text import text_files
from pipeline.errors import InputError
from pipeline.evaluate.run_files import evaluate_files
from pipeline.paths import expand_home
from tasks.keys import paths


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder. The current folder is next to it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("~/data", "{home}/data"),
        ("~", "{home}"),
        ("~root/x", "/root/x"),
        ("a/~/b", "a/~/b"),
        ("./~x", "~x"),
    ],
)
def test_the_home_is_expanded(home: Path, written: str, expected: str) -> None:
    assert expand_home(written) == Path(expected.format(home=home))


UNKNOWN = "~nobody-has-this-name/x: there is no user nobody-has-this-name; give the absolute path"


def test_an_unknown_user_is_reported_with_the_field(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = UNKNOWN.partition(":")[0]
    store = Store(home / "store")
    (home / "own.yaml").write_text(f"extends: tiny\ncondenser: {{checkpoint: {path}}}\n")
    (home / "above.yaml").write_text(f"extends: {path}.yaml\n")
    (home / "rows.yaml").write_text(f"extends: tiny\nrows: {{x: [condenser.checkpoint={path}]}}\n")
    (home / "stsb.yaml").write_text(f"extends: stsb\nmodels: {{BERT: {path}}}\n")
    monkeypatch.setenv("COCONDENSER_STORE", path)
    calls = {
        f"{home}/own.yaml:2: condenser.checkpoint: {UNKNOWN}": lambda: resolve(f"{home}/own.yaml"),
        f"--set bm25.run={path}: bm25.run: {UNKNOWN}": lambda: resolve("tiny", [f"bm25.run={path}"]),
        f"{home}/above.yaml:1: {UNKNOWN.replace('/x', '/x.yaml')}": lambda: resolve(f"{home}/above.yaml"),
        f"{home}/rows.yaml:2: rows.x: condenser.checkpoint={path}: ": lambda: file.load(f"{home}/rows.yaml"),
        f"{home}/stsb.yaml:2: models.BERT: {UNKNOWN}": lambda: sentences.resolve_sentences(f"{home}/stsb.yaml"),
        f"COCONDENSER_STORE: {UNKNOWN}": lambda: store_folder(None),
        f"model: {UNKNOWN}": lambda: find_model(store, path),
        f"collection: {UNKNOWN}": lambda: find_collection(path),
    }
    for line, call in calls.items():
        assert message_of(call).startswith(line)
    result = CliRunner().invoke(app, ["runs", "--store", path], terminal_width=200)
    assert result.exit_code == 2
    assert "Invalid value for '--store'" in result.output
    assert "there is no user nobody-has-this-name" in " ".join(result.output.replace("│", "").split())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("condenser.checkpoint", "~/model"),
        ("bm25.run", "~/run.trec"),
        ("evaluate.systems", "{other: ~/other.trec}"),
        ("ingest", "{reader: several, parts: [{reader: beir, folder: ~/data, document_key: '', metadata: []}]}"),
    ],
)
def test_the_home_is_expanded_in_settings(home: Path, field: str, value: str) -> None:
    as_json = with_settings(resolve("tiny"), [f"{field}={value}"]).model_dump_json()
    assert f'"{home}/' in as_json
    assert "~" not in as_json.replace("~~", "")


@pytest.mark.parametrize(
    ("recipe", "setting", "keys"),
    [
        ("text", "ingest.path={}", ("ingest", "path")),
        ("tiny", "condenser.checkpoint={}", ("condenser", "checkpoint")),
        ("tiny", "evaluate={{systems: {{other: {}}}}}", ("evaluate", "systems", "other")),
    ],
)
@pytest.mark.parametrize("written", ["~", " ~ ", "'~'"])
def test_a_tilde_alone_is_the_home(home: Path, recipe: str, setting: str, keys: tuple[str, ...], written: str) -> None:
    (home / "own.yaml").write_text(f"extends: {recipe}\n{_section(setting.format(written))}")
    for resolved in (resolve(recipe, [setting.format(written)]), resolve(f"{home}/own.yaml")):
        assert reduce(lambda part, key: part[key], keys, resolved.model_dump()) == home


def _section(setting: str) -> str:
    name, _, value = setting.partition("=")
    section, _, field = name.partition(".")
    return f"{section}: {{{field}: {value}}}\n" if field else f"{section}: {value}\n"


@pytest.mark.parametrize("written", ["null", "Null", ""])
def test_null_is_not_a_path(written: str) -> None:
    assert resolve("tiny", [f"condenser.checkpoint={written}"]).condenser.checkpoint is None
    message = message_of(lambda: resolve("text", [f"ingest.path={written}"]))
    assert message == f"--set ingest.path={written}: ingest.path: a path is expected (got None)"


def test_a_folder_whose_name_is_a_number_needs_quotes() -> None:
    assert message_of(lambda: resolve("text", ["ingest.path=2024"])).endswith("expected, a number in quotes (got 2024)")
    assert resolve("text", ['ingest.path="2024"']).ingest.path == Path("2024")


def test_the_home_is_expanded_in_recipes_and_in_extends(home: Path) -> None:
    (home / "below.yaml").write_text("extends: tiny\ncondenser: {checkpoint: ~/model}\n")
    (home / "above.yaml").write_text("extends: ~/below.yaml\nmodel: null\n")
    assert resolve("~/above.yaml").condenser.checkpoint == home / "model"


def test_the_home_is_expanded_in_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COCONDENSER_STORE", "~/store")
    assert store_folder(None) == home / "store"
    assert store_folder("~/other") == home / "other"
    monkeypatch.setenv("COCONDENSER_STORE", "mine")
    assert store_folder(None) == home.parent / "here" / "mine"


def functions(commands: typer.Typer) -> Iterator[Callable[..., None]]:
    yield from (command.callback for command in commands.registered_commands if command.callback)
    for group in commands.registered_groups:
        assert group.typer_instance
        yield from functions(group.typer_instance)


def test_every_option_for_a_path_expands_the_home() -> None:
    hints = [hint for one in functions(app) for hint in get_type_hints(one, include_extras=True).values()]
    of_paths = [hint for hint in hints if "pathlib" in str(get_args(hint)[:1])]
    assert len(of_paths) > 20
    assert all(get_args(hint)[1].parser is expand_home for hint in of_paths)


def test_relative_paths_of_a_recipe_count_from_its_file(home: Path) -> None:
    (home / "recipes").mkdir()
    (home / "recipes" / "own.yaml").write_text("extends: ../below.yaml\nbm25: {run: runs/bm25.trec}\n")
    (home / "below.yaml").write_text("extends: tiny\ncondenser: {checkpoint: model}\nevaluate: {systems: {other: o}}\n")
    recipe = resolve(str(home / "recipes" / "own.yaml"), ["cocondenser.checkpoint=here/model"])
    assert recipe.bm25.run == home / "recipes" / "runs" / "bm25.trec"
    assert recipe.condenser.checkpoint == home / "model"
    assert recipe.evaluate.systems == {"other": home / "o"}
    assert recipe.cocondenser.checkpoint == Path("here/model")  # a path in a setting counts from the current folder


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("model", "{home}/model"),
        ("../model", "{home}/../model"),
        ("~/model", "{home}/model"),
        ("deep/a:b", "{home}/deep/a:b"),
        ("tiny:condenser", "tiny:condenser"),
        ("tiny:model/query", "tiny:model/query"),
        ("hub:some/model@main", "hub:some/model@main"),
    ],
)
def test_paths_of_a_recipe_of_sentences_count_from_its_file(home: Path, written: str, expected: str) -> None:
    (home / "deep").mkdir()
    (home / "below.yaml").write_text(f"extends: stsb\nmodels: {{BERT: '{written}'}}\ntokenizer: vocab.txt\n")
    (home / "deep" / "above.yaml").write_text("extends: ../below.yaml\nmodels: {Own: own}\n")
    recipe = sentences.resolve_sentences(str(home / "deep" / "above.yaml"), ["models.Set=set"])
    assert recipe.models == {"BERT": expected.format(home=home), "Own": f"{home}/deep/own", "Set": "set"}
    assert recipe.tokenizer == home / "vocab.txt"


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("condenser.checkpoint=model", "condenser.checkpoint"),
        ("condenser={checkpoint: 'model'}", "condenser.checkpoint"),
        ("evaluate.systems={other: model}", "evaluate.systems.other"),
        ("ingest={reader: beir, folder: model, document_key: model, metadata: []}", "ingest.folder"),
        (
            "ingest={reader: several, parts: [{reader: beir, folder: model, document_key: '', metadata: []}]}",
            "ingest.parts.0.folder",
        ),
    ],
)
def test_paths_of_an_ablations_settings_count_from_its_file(home: Path, setting: str, field: str) -> None:
    """In `set`, in a size and in a row. Paths in settings of the command count from the current folder."""
    shared = json.dumps([setting])
    other = json.dumps([] if field.startswith("ingest") else [setting.replace("model", "../model")])
    (home / "deep").mkdir()
    (home / "below.yaml").write_text(f"extends: tiny\nset: {shared}\nsizes: [null, 9]\nby_size: {{9: {other}}}\n")
    (home / "deep" / "own.yaml").write_text(f"extends: ../below.yaml\nrows: {{own: {other}}}\n")
    loaded = file.load(str(home / "deep" / "own.yaml"))

    def path_of(row: str, size: int | None, ablation: Ablation) -> Path:
        (cell,) = [one for one in cells(ablation, [row]) if one.size == size]
        return dict(paths(cell.recipe))[field]

    assert path_of("coCondenser", None, loaded) == home / "model"
    if other != "[]":
        assert path_of("coCondenser", 9, loaded) == home / "../model"
        assert path_of("own", None, loaded) == home / "deep/../model"
        added = apply_choice(loaded, Choice(set=["bm25.run=runs/x.trec"]))[0]
        assert dict(paths(cells(added, ["own"])[0].recipe))["bm25.run"] == Path("runs/x.trec")


def test_paths_of_a_rows_settings_count_from_the_file_of_the_settings(home: Path) -> None:
    """They do not count from a file that gives another field of the row."""
    (home / "deep").mkdir()
    (home / "below.yaml").write_text("extends: tiny\nrows: {own: {set: [condenser.checkpoint=model], start: null}}\n")
    (home / "deep" / "own.yaml").write_text("extends: ../below.yaml\nrows: {own: {start: coCondenser}}\n")
    (cell, *_) = cells(file.load(str(home / "deep" / "own.yaml")), ["own"])
    assert dict(paths(cell.recipe))["condenser.checkpoint"] == home / "model"


def test_paths_of_the_projects_recipes_count_from_the_current_folder() -> None:
    assert all(
        not path.is_absolute() for path in resolve("marco").ingest.model_dump().values() if isinstance(path, Path)
    )


@pytest.mark.parametrize("linked", ["code", "here/of/the/code", "flows"])
def test_paths_of_the_projects_recipes_stay_relative_behind_a_link(tmp_path: Path, linked: str) -> None:
    root = Path(yaml_layers.__file__).resolve().parents[2]
    link = tmp_path / linked
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(root / "flows" if linked == "flows" else root)
    code = link.parent if linked == "flows" else link
    script = (
        "from flows.recipes import yaml_layers as y; print(y.__file__, y.read('marco').folder(('ingest', 'corpus')))"
    )
    process = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "PYTHONPATH": f"{code}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
    )
    assert process.stdout == f"{code}/flows/recipes/yaml_layers.py None\n", process.stderr


def test_paths_of_a_recipe_with_a_relative_path_count_from_its_file(home: Path) -> None:
    Path("own.yaml").write_text("extends: tiny\ncondenser: {checkpoint: model}\n")
    assert resolve("own.yaml").condenser.checkpoint == home.parent / "here" / "model"


def message_of(call: object, *arguments: object) -> str:
    with pytest.raises(InputError) as error:
        call(*arguments)  # type: ignore[operator]
    return str(error.value)


def test_messages_show_the_absolute_path_of_a_missing_file(home: Path, tmp_path: Path) -> None:
    here = home.parent / "here"
    gone, store = Path("gone"), Store(tmp_path / "store")
    dag = nodes(resolve("text", ["ingest.path=gone"]))
    assert f"{here}/gone does not exist; ingest.path takes" in message_of(preflight.check, store, dag, dag)
    dag = nodes(resolve("tiny", ["condenser.checkpoint=gone"]))
    assert f"condenser.checkpoint: {here}/gone: no such" in message_of(preflight.check, store, dag, dag)
    assert message_of(find_model, store, "./gone") == f"model {here}/gone: no such folder"
    assert message_of(find_collection, "~/gone") == f"collection {home}/gone: no such folder"
    assert f"{here}/gone: no such file" in message_of(evaluate_files, [gone], gone, 1, "t", 100, 0)
    assert message_of(lambda: [*text_files.lines(gone)]) == f"{here}/gone: no such file"
    assert message_of(yaml_layers.read, "gone.yaml") == f"{here}/gone.yaml: no such recipe file"


@pytest.mark.parametrize("setting", ["ingest.path=mynotes", "tokenizer.path=vocab.txt", "bm25.run=runs/x.trec"])
def test_a_worker_reports_the_folder_of_its_relative_paths(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    (home / "notes.txt").write_text("a note")
    monkeypatch.setenv(preflight.WORKER, "a run of a deployment")
    store, hint = Store(tmp_path / "store"), f"\na worker looks for relative paths in {Path.cwd()}: give absolute ones"
    dag = nodes(with_settings(resolve("text", ["ingest.path=~/notes.txt", "ingest.questions=[]"]), [setting]))
    assert message_of(preflight.check, store, dag, dag).endswith(hint)
    field, path = setting.split("=")
    dag = nodes(with_settings(resolve("text", ["ingest.path=~/notes.txt"]), [f"{field}={tmp_path / path}"]))
    assert not message_of(preflight.check, store, dag, dag).endswith(hint)


@pytest.mark.parametrize("entry", ["/mine", "", "."])
@pytest.mark.parametrize("rest", [["/code", "/lib"], ["/lib", "/code"], ["/lib"]])
def test_modules_of_the_current_folder_come_last(entry: str, rest: list[str]) -> None:
    code = [] if "/code" in rest else ["/code"]
    assert current_folder_last([entry, *rest], "/mine", "/code") == [*rest, *code, entry]
    assert current_folder_last([entry, *rest], "/mine", "/mine") == [entry, *rest]


@pytest.mark.parametrize("name", ["tasks", "pipeline", "artifacts"])
def test_a_users_module_does_not_replace_one_of_an_editable_install(tmp_path: Path, name: str) -> None:
    """An editable install finds its packages after all of sys.path."""
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the own one')")
    root = Path(yaml_layers.__file__).resolve().parents[2]
    script = f"""
import sys, importlib.util
own, of = {str(root / "flows")!r}, importlib.util.spec_from_file_location
spec = of("flows", own + "/__init__.py", submodule_search_locations=[own])
module = sys.modules["flows"] = importlib.util.module_from_spec(spec)
sys.path.insert(0, "")
spec.loader.exec_module(module)
import {name}
print({name}.__file__)
"""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    process = subprocess.run(
        [sys.executable, "-I", "-c", script], env=variables, cwd=tmp_path, capture_output=True, text=True
    )
    assert process.stdout == f"{root}/{name}/__init__.py\n", process.stderr
