"""Folders of a test's own for Prefect and the store, and the real command line in a process of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO

import pytest
from commands import command_server
from ready import beir
from three_rows import ROWS, own

from artifacts.store import Store
from flows.ablations.ablation import Ablation
from flows.cli.main import main
from pipeline.bm25.searcher import Searcher
from pipeline.training.speed import Speed

ROOT = Path(__file__).resolve().parents[2]
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of the tests' own process measure nothing."""
    monkeypatch.setattr("flows.graph.estimate.speed", lambda *arguments: Speed(1.0, 3.0, 3e5, 1e5))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """In BEIR's layout, judged on test."""
    return beir(tmp_path / "lamps")


@pytest.fixture
def three(tmp_path: Path) -> Ablation:
    """Three rows of two seeds."""
    return own(tmp_path, ROWS)


@pytest.fixture(scope="session")
def run_cli(environment: dict[str, str]) -> Cli:
    """`run_cli("plan", "tiny", store=...)`: the command in a process of its own."""

    def call(
        *arguments: str,
        store: Path,
        stdout: int | IO[str] = subprocess.PIPE,
        variables: Mapping[str, str] = environment,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *arguments],
            env={**variables, "COCONDENSER_STORE": str(store)},
            cwd=ROOT,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )

    return call


@pytest.fixture(scope="session")
def run_served(served: dict[str, str]) -> Iterator[Cli]:
    """As `run_cli`, with the Prefect server of the tests, in a fork: that saves the starts of both."""
    with command_server(served) as run:
        yield run


@pytest.fixture
def call_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """As `run_cli`, but in the tests' own process, which saves the start of one: for commands without Prefect."""

    def call(*arguments: str, store: Path) -> subprocess.CompletedProcess[str]:
        command = ["cocondenser", *arguments]
        monkeypatch.chdir(ROOT)
        monkeypatch.setenv("COCONDENSER_STORE", str(store))
        monkeypatch.setattr(sys, "argv", command)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(command, int(ended.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture(scope="module")
def kept_searchers() -> Iterator[list[Path]]:
    """Sessions on the same index share one Java process, which saves the start. Yields the indexes that were closed."""
    closed: list[Path] = []

    class KeptSearcher(Searcher):
        def __init__(self, artifact: Path) -> None:
            super().__init__(artifact)
            self.artifact = artifact

        def close(self) -> None:
            closed.append(self.artifact)

    with ExitStack() as running, pytest.MonkeyPatch.context() as patch:

        @cache
        def searcher(artifact: Path, once: bool) -> Searcher:
            kept = KeptSearcher(artifact)
            running.callback(Searcher.close, kept)
            return kept

        patch.setattr("flows.serving.session.Searcher", searcher)
        yield closed


@pytest.fixture(scope="session")
def tiny_ended(
    run_served: Cli, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """(store, the command) of one run of `tiny` for all tests; nobody writes into this store."""
    store = tmp_path_factory.mktemp("tiny") / "store"
    ended = run_served("run", "tiny", "--json", "--device", "cpu", store=store)
    assert ended.returncode == 0, ended.stderr
    return store, ended


@pytest.fixture(scope="session")
def tiny_run(tiny_ended: tuple[Path, subprocess.CompletedProcess[str]]) -> tuple[Path, dict]:
    """(store, what it printed as JSON)."""
    store, ended = tiny_ended
    return store, json.loads(ended.stdout)


@pytest.fixture
def tiny_copy(tiny_ended: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> Path:
    """A store of the test's own that holds a run of `tiny`."""
    return shutil.copytree(tiny_ended[0], tmp_path / "store")
