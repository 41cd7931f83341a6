"""Which Prefect server a run talks to: that of the active profile where it answers, else one of its own."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

QUIET = {
    # The bars and lines of tasks/terminal.py take the place of Prefect's log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
}


def healthy(api: str, seconds: float = 2.0) -> bool:
    """Does a Prefect server answer at this API address?"""
    try:
        with urllib.request.urlopen(f"{api.rstrip('/')}/health", timeout=seconds):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500  # one that asks for a key first
    except (OSError, ValueError):
        return False


@contextmanager
def reachable_server() -> Iterator[str | None]:
    """Prefect's settings with the active profile's server if it answers, else with one that lives as long as the run.

    Yields the server's address, or None. Call it before anything else imports prefect.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
        temporary_settings,
    )

    address = PREFECT_API_URL.value()
    if address and healthy(str(address)):
        yield str(address)
        return
    changes = {PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: True, PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS: 120}
    with temporary_settings(updates=changes, restore_defaults={PREFECT_API_URL}):
        yield None
