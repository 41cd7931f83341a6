"""Which Prefect server a run talks to: that of the active profile where it answers, else one of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from flows.processes import free_port, prefect_process, wait_until_healthy
from tasks.api import healthy, send_the_rest

QUIET = {
    # The bars and lines of tasks/terminal.py take the place of Prefect's log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
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
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = PREFECT_API_URL.value()
    if address and healthy(str(address)):
        yield str(address), False
        return
    port = free_port()
    own = f"http://127.0.0.1:{port}/api"
    environment = {**os.environ, "PREFECT_API_URL": own}
    with prefect_process(
        ["server", "start", "--host", "127.0.0.1", "--port", str(port)], environment, quiet=True
    ) as server:
        import prefect.flows  # noqa: F401  (takes seconds, in which the server starts)

        wait_until_healthy(own, server)
        with temporary_settings(updates={PREFECT_API_URL: own}):
            try:
                yield own, True
            finally:
                send_the_rest()
