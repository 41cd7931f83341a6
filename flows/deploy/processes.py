"""Prefect's own processes (server, worker): started, awaited and ended together with this one."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pipeline.runtime.processes import python, signal_with_parent

STOP_SECONDS = 20


@contextmanager
def prefect_process(
    arguments: list[str], environment: Mapping[str, str], folder: Path | None = None, said: deque[str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Prefect process in `folder` that ends with the block; at the latest with this process, should it be killed.

    Where `said` is given, the process is silent and its lines go there.
    """
    child = subprocess.Popen(
        python("prefect", *arguments),
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=None if said is None else subprocess.PIPE,
        stderr=None if said is None else subprocess.STDOUT,
        # A session of its own: Ctrl-C reaches this process alone, which ends the others in order.
        start_new_session=True,
        preexec_fn=partial(signal_with_parent, signal.SIGTERM),
    )
    listener = threading.Thread(target=_listen, args=(child, said), daemon=True)
    listener.start()
    try:
        yield child
    finally:
        stop(child)
        listener.join(STOP_SECONDS)


def _listen(child: subprocess.Popen[bytes], said: deque[str] | None) -> None:
    """A pipe that nobody reads would stop the process once it is full."""
    if child.stdout is not None and said is not None:
        with child.stdout:
            said.extend(line.decode(errors="replace") for line in child.stdout)


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
