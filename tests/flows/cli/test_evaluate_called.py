"""`cocondenser evaluate-model`: the name of its run, and its recipe as a file."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from ready import plain
from typer.testing import CliRunner

from artifacts.store import Store
from flows.cli.main import app
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.errors import InputError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return plain(tmp_path / "small")


def written(model: Path, collection: Path, path: Path, *more: str) -> Result:
    arguments = [str(model), str(collection), "--store", str(model.parent / "store")]
    return CliRunner().invoke(app, ["evaluate-model", *arguments, "--device", "cpu", "--write", str(path), *more])


def test_json_shows_the_written_recipe(model: Path, collection: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    result = written(model, collection, path, "--json")
    assert json.loads(result.stdout) == {"recipe": "small on lamps", "file": str(path)}
    assert path.exists()


def test_another_file_is_not_overwritten(model: Path, collection: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for _ in range(2):  # writing the same again changes nothing
        assert written(model, collection, path).exit_code == 0
    before = path.read_bytes()
    result = written(model, collection, path, "--set", "bm25.k1=1.2")
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == f"--write {path}: the file exists already, with other content"
    assert path.read_bytes() == before


def test_settings_that_change_nothing_are_reported(model: Path, collection: Path, tmp_path: Path) -> None:
    settings = ("--set", "bm25.k1=1.2", "--set", "stage1.epochs=5", "--relevance", "2")
    result = written(model, collection, tmp_path / "mine.yaml", *settings)
    assert result.stderr.count("warning: ") == 1
    assert "warning: --set stage1.epochs=5 changes nothing in this run" in result.stderr


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("mine", "the file name must end in .yaml"),
        ("folder.yaml", "is a directory"),
        ("no/mine.yaml", "no such file or directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(model: Path, collection: Path, tmp_path: Path, name, line) -> None:
    (tmp_path / "folder.yaml").mkdir()
    result = written(model, collection, tmp_path / name)
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == f"--write {tmp_path / name}: {line}"


@pytest.mark.parametrize("name", ["", " ", "..", "/"])
def test_a_name_needs_a_letter(model: Path, collection: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"--name '.*': only letters, digits and .* are allowed"):
        zero_shot_recipe(Store(tmp_path / "store"), str(model), str(collection), name=name)


@pytest.mark.parametrize(
    ("folder", "label"),
    [
        ("mine/model", "mine"),
        ("mine/3f2a90c1d4e5", "mine"),
        ("mine/model/" + "3f2a90c1" * 8, "mine"),
        ("mine/models", "models"),
        ("mine/decade", "decade"),
    ],
)
def test_a_folder_with_a_generic_name_has_the_name_of_its_parent(
    collection: Path, tmp_path: Path, folder, label
) -> None:
    path = plain(tmp_path / folder)
    recipes = [
        zero_shot_recipe(Store(tmp_path / "store"), str(path), str(collection), name=name)[0]
        for name in (None, "other")
    ]
    assert [recipe.name for recipe in recipes] == [f"{label} on lamps", "other"]
    assert recipes[0].description == f"{label} as it is, without training, on lamps."
