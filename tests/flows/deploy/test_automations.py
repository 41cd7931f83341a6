"""Automations that `cocondenser up` creates on Prefect's server."""

from types import SimpleNamespace
from typing import Any

import pytest
from prefect.automations import Automation
from prefect.blocks.core import Block
from prefect.blocks.notifications import SlackWebhook
from prefect.blocks.system import Secret
from prefect.settings import PREFECT_API_URL

from flows.cli.up import up
from flows.deploy.automations import LOWER, SILENT, crash_runs_without_heartbeat, notify_of_updates
from flows.updates.figures import FELL
from pipeline.errors import InputError

API = "http://127.0.0.1:4999/api"
ID = "00000000-0000-0000-0000-000000000001"


class Server:
    """Notes what is done on the server, and at which address."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.created: list[Automation] = []
        self.addresses: set[str | None] = set()

    def read(self, name: str) -> SimpleNamespace:
        self.addresses.add(PREFECT_API_URL.value())
        return SimpleNamespace(delete=lambda: self.done.append(("delete", name)))

    def create(self, automation: Automation) -> None:
        self.addresses.add(PREFECT_API_URL.value())
        self.done.append(("create", automation.name))
        self.created.append(automation)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(Automation, "read", lambda name: server.read(name))
    monkeypatch.setattr(Automation, "create", lambda self: server.create(self))
    return server


def blocks(monkeypatch: pytest.MonkeyPatch, found: Block | None) -> None:
    def load(name: str) -> Block:
        if found is None:
            raise ValueError(f"Unable to find block document {name}")
        return found

    monkeypatch.setattr(Block, "load", load)


def test_an_automation_replaces_that_of_an_earlier_start(server: Server) -> None:
    crash_runs_without_heartbeat(API)
    assert server.done == [("delete", SILENT), ("create", SILENT)]
    assert server.addresses == {API}


def test_a_notification_block_reports_updates(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    block = SlackWebhook(url="https://hooks.example/1")
    block._block_document_id = ID
    blocks(monkeypatch, block)
    notify_of_updates(API, "slack-webhook/search")
    assert server.done == [("delete", LOWER), ("create", LOWER)]
    assert server.addresses == {API}
    (automation,) = server.created
    trigger: Any = automation.trigger
    assert trigger.expect == {f"prefect.flow-run.{state}" for state in (FELL, "Failed", "Crashed")}
    assert "update" in str(trigger.match_related)
    message: Any = automation.actions[0]
    assert str(message.block_document_id) == ID


def test_without_a_block_nothing_is_sent_any_more(server: Server) -> None:
    notify_of_updates(API, None)
    assert server.done == [("delete", LOWER)]


@pytest.mark.parametrize(
    ("block", "line"),
    [
        (None, "--notify slack-webhook/x: no such block of Prefect; create it on the page of blocks, and name it "),
        (Secret(value="x"), "--notify slack-webhook/x: this block sends no notifications"),
    ],
)
def test_a_wrong_block_is_refused_in_one_line(server: Server, monkeypatch, block: Block | None, line: str) -> None:
    blocks(monkeypatch, block)
    with pytest.raises(InputError, match=line):
        notify_of_updates(API, "slack-webhook/x")
    assert server.done == []


@pytest.mark.parametrize("block", ["nonsense", "", "a/b/c", "slack-webhook/", "/search"])
def test_a_name_that_no_block_has_is_refused_before_the_server_starts(monkeypatch, block: str) -> None:
    monkeypatch.setattr("flows.cli.up.own_server", lambda *_: pytest.fail("the server was started"))
    with pytest.raises(InputError, match=f"^--notify {block}: create it on the page of blocks, and name it TYPE/NAME"):
        up(0, block)
