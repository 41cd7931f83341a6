"""Prefect's own processes (server, worker): started, awaited and ended together with this one."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pipeline.errors import InputError
from pipeline.parent import signal_with_parent
from tasks.api import healthy

START_SECONDS = 120
STOP_SECONDS = 20


@contextmanager
def prefect_process(
    arguments: list[str], environment: Mapping[str, str], folder: Path | None = None, quiet: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A Prefect process in `folder` that ends with the block; at the latest with this process, should it be killed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "prefect", *arguments],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL if quiet else None,
        stderr=subprocess.DEVNULL if quiet else None,
        # A session of its own: Ctrl-C reaches this process alone, which ends the others in order.
        start_new_session=True,
        preexec_fn=partial(signal_with_parent, signal.SIGTERM),
    )
    try:
        yield child
    finally:
        stop(child)


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and all that it started: a run under way ends its training and keeps its checkpoint."""
    for number, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def wait_until_healthy(api: str, server: subprocess.Popen[bytes]) -> None:
    """Raises InputError where the server ends or is silent for START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while not healthy(api):
        if server.poll() is not None or time.monotonic() > end:
            raise InputError(f"Prefect's server does not answer at {api}; try `prefect server start` for its reasons")
        time.sleep(0.2)


def taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what has just ended holds nothing
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
