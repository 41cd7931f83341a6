import os
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from warming import fork_server

# The processes of pytest-xdist have COLUMNS and LINES set, and a console keeps the width with which it is created.
# With PYTHONDONTWRITEBYTECODE each of the many processes of the tests would compile the project's modules again.
for name in ("COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(name, None)
sys.dont_write_bytecode = False
# Two processes of tests share the cores: with threads of their own they would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests with & has SIGINT ignored, and so would the runs that they interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # all of pytest's processes have one fork server
        running = ExitStack()
        running.enter_context(fork_server())
        config.add_cleanup(running.close)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


STARTS_A_SERVER = {"harness", "environment"}
"""Fixtures of quick tests that start Prefect's servers, or the command line, which does."""


LONGEST = (
    *("test_end_to_end", "test_server", "test_methods", "test_ablation_run", "test_kill", "test_ray"),
    "test_fake_cuda",
    *("test_damage_rebuilt", "test_readme", "test_own_server", "test_sentences", "test_ablation_join", "test_ablation"),
    *("test_bm25", "test_ict", "test_cocondenser", "test_search", "test_export", "test_launch", "test_finetune"),
    *("test_cross_encoder", "test_training", "test_scheduler", "test_readers_data", "test_ablation_gains"),
)
"""Files whose tests take longest, in the order in which they start: two processes then end at about the same time."""


def position(item: pytest.Item, servers: set[Path]) -> int:
    """The item's place in LONGEST; others come after all of these."""
    name = LONGEST[0] if item.path in servers else item.path.stem
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share what they build, so one process runs them all.

    Files whose quick tests start Prefect's servers share a process too: two of them starting side by side lose one.
    Files may name a group that they share, by pytest's marker `xdist_group`.
    """
    servers = {
        item.path
        for item in items
        if not item.get_closest_marker("slow") and STARTS_A_SERVER & set(getattr(item, "fixturenames", ()))
    }
    items.sort(key=lambda item: position(item, servers))
    for item in items:
        together = item.path in servers and not item.get_closest_marker("slow")
        own = item.path.relative_to(Path(__file__).parents[1]).with_suffix("").as_posix()
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("servers" if together else own))


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture(scope="session")
def environment(prefect_home: Path) -> dict[str, str]:
    """Without the user's Prefect, its server and their store."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "COCONDENSER_"))}
    return {**mine, "PREFECT_HOME": str(prefect_home), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


@pytest.fixture(scope="session")
def served(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of runs that share one Prefect server, which saves each its start."""
    from flows.deploy.own_server import wait_until_healthy
    from flows.deploy.processes import free_port, prefect_process

    port = free_port()
    there = {**environment, "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    command = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    output: deque[str] = deque(maxlen=50)
    with prefect_process(command, there, None, output) as server:
        wait_until_healthy(there["PREFECT_API_URL"], server, output)
        yield there
