"""Which Prefect server a run talks to: that of the active profile where it answers, else one of its own."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from flows.deploy.own_server import expect_no_home, own_server
from flows.deploy.processes import free_port
from pipeline.runtime.network import check_usable, is_loopback, without_proxy
from tasks.api import healthy, send_the_rest

QUIET = {
    # The bars and lines of tasks/terminal.py take the place of Prefect's log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # Else each event that a killed server did not take would be printed.
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
}


@contextmanager
def reachable_server() -> Iterator[tuple[str, bool]]:
    """The address of the active profile's server if it answers, else of one that lives as long as the run.

    Yields the address and whether the server is the run's own. Enter it before anything else imports prefect.
    Not Prefect's ephemeral mode: a server of that mode outlives a run that is killed.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    logging.raiseExceptions = False  # else each batch of logs that a killed server did not take would be printed
    os.environ["PYTHONSAFEPATH"] = "1"  # for what libraries start: no module from the current folder
    expect_no_home()
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = str(PREFECT_API_URL.value() or "")
    if address and healthy(address):
        if is_loopback(address):
            without_proxy(os.environ, address)
        else:
            check_usable(f"Prefect's server {address}")
        yield address, False
        return
    without_proxy(os.environ)
    with own_server(free_port()) as own, temporary_settings(updates={PREFECT_API_URL: own}):
        try:
            yield own, True
        finally:
            send_the_rest()
