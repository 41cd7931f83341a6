"""`cocondenser evaluate-model`: what its run is called, and its recipe as a file."""

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


def test_a_written_recipe_is_shown_as_json_too(model: Path, collection: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    ended = written(model, collection, path, "--json")
    assert json.loads(ended.stdout) == {"recipe": "small on lamps", "file": str(path)}
    assert path.exists()


def test_another_file_is_not_overwritten(model: Path, collection: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for _ in range(2):  # the same again changes nothing
        assert written(model, collection, path).exit_code == 0
    before = path.read_bytes()
    ended = written(model, collection, path, "--set", "bm25.k1=1.2")
    assert isinstance(ended.exception, InputError)
    assert str(ended.exception) == f"--write {path}: the file exists already, with other content"
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("mine", "the file name must end in .yaml"),
        ("folder.yaml", "is a directory"),
        ("no/mine.yaml", "no such file or directory"),
    ],
)
def test_what_cannot_be_written_is_one_line(model: Path, collection: Path, tmp_path: Path, name, line) -> None:
    (tmp_path / "folder.yaml").mkdir()
    ended = written(model, collection, tmp_path / name)
    assert isinstance(ended.exception, InputError)
    assert str(ended.exception) == f"--write {tmp_path / name}: {line}"


@pytest.mark.parametrize("name", ["", " ", "..", "/"])
def test_a_name_needs_a_letter(model: Path, collection: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"--name '.*': only letters, digits and .* are allowed"):
        zero_shot_recipe(Store(tmp_path / "store"), str(model), str(collection), name=name)


@pytest.mark.parametrize(
    ("folder", "called"),
    [
        ("mine/model", "mine"),
        ("mine/3f2a90c1d4e5", "mine"),
        ("mine/model/" + "3f2a90c1" * 8, "mine"),
        ("mine/models", "models"),
        ("mine/decade", "decade"),
    ],
)
def test_a_folder_whose_name_says_nothing_goes_by_its_parent(collection: Path, tmp_path: Path, folder, called) -> None:
    path = plain(tmp_path / folder)
    found = [
        zero_shot_recipe(Store(tmp_path / "store"), str(path), str(collection), name=name)[0]
        for name in (None, "other")
    ]
    assert [recipe.name for recipe in found] == [f"{called} on lamps", "other"]
    assert found[0].description == f"{called} as it is, without training, on lamps."
