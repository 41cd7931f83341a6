"""Folders of a test's own for Prefect and the store, and the real command line in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from ready import beir
from three_rows import ROWS, own

from artifacts.store import Store
from flows.ablations.ablation import Ablation
from flows.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
Cli = Callable[..., subprocess.CompletedProcess[str]]


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
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture(scope="session")
def environment(prefect_home: Path) -> dict[str, str]:
    """Without the user's Prefect, its server and their store."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "COCONDENSER_"))}
    return {**mine, "PREFECT_HOME": str(prefect_home), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


@pytest.fixture(scope="session")
def run_cli(environment: dict[str, str]) -> Cli:
    """`run_cli("plan", "tiny", store=...)`: the command in a process of its own."""

    def call(
        *arguments: str, store: Path, seconds: float = 300, stdout: int | IO[str] = subprocess.PIPE
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *arguments],
            env={**environment, "COCONDENSER_STORE": str(store)},
            cwd=ROOT,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=seconds,
        )

    return call


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


@pytest.fixture(scope="session")
def tiny_ended(run_cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """(store, the command) of one run of `tiny` for all tests; nobody writes into this store."""
    store = tmp_path_factory.mktemp("tiny") / "store"
    ended = run_cli("run", "tiny", "--json", "--device", "cpu", store=store, seconds=500)
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


@pytest.fixture(scope="module")
def served(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of runs that share one Prefect server, which saves each its start."""
    from flows.deploy.own_server import wait_until_healthy
    from flows.deploy.processes import free_port, prefect_process

    port = free_port()
    there = {**environment, "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    command = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    said: deque[str] = deque(maxlen=50)
    with prefect_process(command, there, ROOT, said) as server:
        wait_until_healthy(there["PREFECT_API_URL"], server, said)
        yield there
