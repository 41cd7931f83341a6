"""The Prefect server of a run: the active profile's if it answers, otherwise one that the run starts."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from flows.deploy.own_server import expect_no_home, own_server
from flows.deploy.processes import free_port
from pipeline.runtime.network import check_usable, is_loopback, without_proxy
from tasks.api import healthy, send_the_rest

QUIET = {
    # The bars and lines of tasks/terminal.py replace Prefect's log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # Otherwise Prefect prints each event that a killed server has not received.
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
}


@contextmanager
def reachable_server() -> Iterator[tuple[str, bool]]:
    """Yields the server's address, and whether the run has started this server.

    The server is the active profile's if it answers. Otherwise the run starts one, which ends with the run. (The
    server of Prefect's ephemeral mode would outlive a killed run.) Enter the block before anything imports prefect.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    logging.raiseExceptions = False  # otherwise logging prints each batch that a killed server has not received
    os.environ["PYTHONSAFEPATH"] = "1"  # for child processes of libraries: no module from the current folder
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
