"""A store, keys to build in it, and processes that build."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packs import make_run

from artifacts.keys import Key, make_key
from artifacts.runs import RunRecord
from artifacts.store import Store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def key() -> Callable[..., Key]:
    """A function that builds a key of the stage `train`; arguments replace its components."""

    def make(**changed: Any) -> Key:
        components = {
            "stage": "train",
            "code": {"pipeline/train.py": "c0"},
            "config": {"steps": 3, "optimiser": {"rate": 0.1}},
            "sources": {"corpus": "s0"},
            "inputs": {"tokens": "i0"},
            "libraries": {},
        }
        return make_key(**(components | changed))

    return make


@pytest.fixture
def writes() -> Callable[..., Callable[[Path, Path], dict[str, Any]]]:
    """A function that returns a maker, which writes `text` into two files and returns `metrics`."""

    def maker(text: str = "model", **metrics: Any) -> Callable[[Path, Path], dict[str, Any]]:
        def make(out: Path, checkpoints: Path) -> dict[str, Any]:
            (out / "sub").mkdir()
            (out / "model.bin").write_text(text)
            (out / "sub/words.txt").write_text(text * 2)
            return metrics

        return make

    return maker


@pytest.fixture
def never() -> Callable[[Path, Path], dict[str, Any]]:
    """A maker that must not be called, because the artifact is in the store."""

    def make(out: Path, checkpoints: Path) -> dict[str, Any]:
        raise AssertionError("built what is in the store")

    return make


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python process on a script, whose `argv[1:]` are the further arguments. No process outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, **(pipes | options)))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits until a condition holds, at most 30 s."""

    def wait(holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.01)

    return wait


@pytest.fixture
def run(store: Store, key: Callable[..., Key], writes: Callable[..., Any]) -> RunRecord:
    """A run of three artifacts, the newest of the store."""
    return make_run(store, key, writes)


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """An empty store to import into."""
    return Store(tmp_path / "other")
