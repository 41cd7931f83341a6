"""Automations of Prefect's server: what it does by itself when a run ends or stays silent."""

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from pipeline.errors import InputError

if TYPE_CHECKING:
    from prefect.events.actions import ActionTypes

HEARTBEAT_SECONDS = 30
SILENT = "cocondenser: crash runs without heartbeat"
LOWER = "cocondenser: report updates with lower figures"
BLOCK_ADVICE = "create it on the page of blocks, and name it TYPE/NAME, such as slack-webhook/search"
TEXT = """\
{{ flow_run.name }}: {{ flow_run.state.name }}
{{ flow_run.state.message }}
{{ flow_run|ui_url }}"""


def crash_runs_without_heartbeat(api: str) -> None:
    """Creates an automation: otherwise a run whose process and worker are killed together stays Running for ever.

    `api`: address of the server.
    """
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture

    heartbeat = "prefect.flow-run.heartbeat"
    end_events = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    trigger = EventTrigger(
        after={heartbeat},
        expect={heartbeat, *end_events},
        match=cast(Any, {"prefect.resource.id": ["prefect.flow-run.*"]}),
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=3 * HEARTBEAT_SECONDS),
    )
    crash = ChangeFlowRunState(
        name=None, state=StateType.CRASHED, message="no heartbeat: its process was killed", force=False
    )
    with active_server(api):
        replace_automation(SILENT, trigger, crash)


def check_block_name(block: str | None) -> None:
    """Raises InputError unless `block` is TYPE/NAME, before a server starts that knows which blocks there are."""
    if block is not None and not re.fullmatch(r"[^/]+/[^/]+", block):
        raise InputError(f"--notify {block}: {BLOCK_ADVICE}")


def notify_of_updates(api: str, block: str | None) -> None:
    """Creates an automation that sends a message if an update fails, or if figures are lower after it.

    `block`: TYPE/NAME of a notification block, such as slack-webhook/search; None removes the automation. Raises
    InputError for an unknown block.
    """
    from prefect.events.actions import SendNotification
    from prefect.events.schemas.automations import EventTrigger

    from flows.updates.figures import FELL

    with active_server(api):
        if block is None:
            remove_automation(LOWER)
            return
        trigger = EventTrigger(
            expect={f"prefect.flow-run.{state}" for state in (FELL, "Failed", "Crashed")},
            match=cast(Any, {"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=cast(Any, {"prefect.resource.role": "flow", "prefect.resource.name": "update"}),
            for_each={"prefect.resource.id"},
            threshold=1,
        )
        message = SendNotification(block_document_id=block_id(block), subject="cocondenser update", body=TEXT)
        replace_automation(LOWER, trigger, message)


def block_id(block: str) -> UUID:
    """The id of a block TYPE/NAME of the active server. Raises InputError for an unknown one."""
    from prefect.blocks.core import Block
    from prefect.blocks.notifications import NotificationBlock

    try:
        loaded = Block.load(block)
    except ValueError:
        raise InputError(f"--notify {block}: no such block of Prefect; {BLOCK_ADVICE}") from None
    if not isinstance(loaded, NotificationBlock):
        raise InputError(f"--notify {block}: this block sends no notifications")
    return cast(UUID, loaded._block_document_id)


def replace_automation(name: str, trigger: Any, action: "ActionTypes") -> None:
    """Creates an automation instead of those that have the name."""
    from prefect.automations import Automation

    remove_automation(name)
    Automation(name=name, trigger=trigger, actions=[action]).create()


def remove_automation(name: str) -> None:
    from prefect.automations import Automation

    with contextlib.suppress(ValueError):
        cast(Automation, Automation.read(name=name)).delete()


@contextmanager
def active_server(api: str) -> Iterator[None]:
    """The block talks to the server at `api`. Prefect has read its settings before: without this address it starts a
    second server."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings(updates={PREFECT_API_URL: api}):
        yield
