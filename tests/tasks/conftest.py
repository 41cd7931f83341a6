"""A store, a machine, a stage that is quick, and a Prefect server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import make_machine

from artifacts.store import Store
from pipeline.runtime.work import Machine
from tasks.stages import STAGES, Stage

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def machine() -> Machine:
    return make_machine()


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    from letters import letter

    monkeypatch.setitem(STAGES, "letter", Stage(letter))


@pytest.fixture(scope="session")
def harness() -> Iterator[None]:
    """A Prefect server of the tests' own."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield
