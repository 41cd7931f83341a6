"""`cocondenser up`."""

from types import SimpleNamespace
from typing import Any

from prefect.automations import Automation
from prefect.settings import PREFECT_API_URL

from flows.cli.up import crash_runs_without_heartbeat

API = "http://127.0.0.1:4999/api"


def test_the_automation_is_created_on_the_server_that_was_started(monkeypatch) -> None:
    addresses: list[str | None] = []

    def note(*_: Any, **__: Any) -> SimpleNamespace:
        addresses.append(PREFECT_API_URL.value())
        return SimpleNamespace(delete=lambda: None)

    monkeypatch.setattr(Automation, "read", note)
    monkeypatch.setattr(Automation, "create", note)
    crash_runs_without_heartbeat(API)
    assert addresses == [API, API]
