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
def harness(served: dict[str, str]) -> Iterator[None]:
    """The Prefect server of the tests."""
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_HOME,
        temporary_settings,
    )

    own = {
        PREFECT_API_URL: served["PREFECT_API_URL"],
        PREFECT_HOME: Path(served["PREFECT_HOME"]),
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,  # a flow waits a second or two for the end of its heartbeats
    }
    with temporary_settings(own):
        yield
