"""The version of a stage's code."""

import importlib
import sys
import textwrap
import time

import pytest

from artifacts import fingerprint
from artifacts.errors import StoreError

FILES = {
    "__init__.py": "",
    "stage.py": '''
        """A stage."""
        import json
        from house.helper import double
        from house import other as renamed

        class Settings:
            steps: int
            """How many."""

        def run(x):
            """Runs."""
            from house.readers import plain  # inside
            return double(x), "house.child:main", "house.data."
    ''',
    "helper.py": "from . import deep\ndef double(x):\n    return 2 * x\n",
    "deep.py": "VALUE = 1\n",
    "other.py": "VALUE = 2\n",
    "child.py": "def main():\n    return 3\n",
    "unused.py": "VALUE = 4\n",
    "readers/__init__.py": "",
    "readers/plain.py": "from ..helper import double\nfrom .gz import opened\n",
    "readers/gz.py": "opened = 5\n",
    "data/__init__.py": "",
    "data/one.py": "VALUE = 6\n",
    "data/table.html": "<table>",
    "data/README.md": "words",
}
REACHED = set(FILES) - {"unused.py", "data/README.md"}


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A package `house` on the path, and its stage's version."""
    for name, text in FILES.items():
        path = tmp_path / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    fingerprint._folder.cache_clear()
    function = importlib.import_module("house.stage").run

    def version():
        return fingerprint.code_version(function, ("house",))

    yield tmp_path / "house", version
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]
    fingerprint._folder.cache_clear()


def test_every_import_is_followed(house):
    _, version = house
    assert set(version()) == {f"house/{name}" for name in REACHED}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A stage."""', '"""The stage.\n\nIt runs.\n"""\n# Why.'),
        ('    """How many."""', "    # how many"),
        ('    """Runs."""\n', "\n\n"),
        ("  # inside", ""),
        ('double(x), "house.child:main", "house.data."', '(\n double( x ),\n "house.child:main", "house.data.")'),
    ],
    ids=["module", "field", "function", "comment", "layout"],
)
def test_docstrings_comments_and_layout_change_nothing(house, old, new):
    folder, version = house
    before = version()
    text = (folder / "stage.py").read_text()
    assert old in text
    (folder / "stage.py").write_text(text.replace(old, new))
    assert version() == before


@pytest.mark.parametrize("name", sorted(REACHED))
def test_a_change_of_any_module_appears_under_its_name(house, name):
    folder, version = house
    before = version()
    with (folder / name).open("a") as file:
        file.write("\nNEW = 7\n")
    after = version()
    assert {file for file in after if after[file] != before[file]} == {f"house/{name}"}


def test_a_module_that_is_not_imported_changes_nothing(house):
    folder, version = house
    before = version()
    (folder / "unused.py").write_text("VALUE = 8\n")
    (folder / "data/README.md").write_text("other words")
    assert version() == before


def test_a_syntax_error_is_reported_with_its_file(house):
    folder, version = house
    (folder / "deep.py").write_text("VALUE =\n")
    with pytest.raises(StoreError, match=r"house/deep\.py:1: "):
        version()


def test_functions_outside_the_roots_have_a_version_too():
    version = fingerprint.code_version(test_every_import_is_followed, ("artifacts",))
    assert {"test_fingerprint.py", "artifacts/fingerprint.py", "artifacts/errors.py"} <= set(version)


def test_values_that_look_alike_differ(house):
    folder, version = house
    seen = set()
    for text in ["A = 1", "A = 1.0", "A = True", "A = '1'", "A = b'1'", "A = None", "B = 1", "A: int = 1", "A == 1"]:
        (folder / "deep.py").write_text(text + "\n")
        seen.add(version()["house/deep.py"])
    assert len(seen) == 9


def test_a_version_is_computed_quickly():
    from artifacts.store import Store

    fingerprint._cache.clear()
    started = time.process_time()
    fingerprint.code_version(Store.build, ("artifacts",))
    first = time.process_time() - started
    started = time.process_time()
    fingerprint.code_version(Store.build, ("artifacts",))
    assert first < 0.3
    assert time.process_time() - started < 0.1
