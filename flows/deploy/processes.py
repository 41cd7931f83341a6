"""Prefect's processes (server, worker), which end together with this one."""

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
from pathlib import Path

from pipeline.runtime.processes import ROOT, python

STOP_SECONDS = 20


@contextmanager
def prefect_process(
    arguments: list[str], environment: Mapping[str, str], folder: Path | None = None, output: deque[str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Prefect process in `folder`. It ends with the block, or with this process if that is killed.

    `output` receives the lines of the process. Without it, the process prints them.
    """
    path = os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]))
    child = subprocess.Popen(
        python("pipeline.runtime.descendant", signal.SIGTERM.name, "prefect", *arguments),
        env={**environment, "PIPELINE_PARENT": str(os.getpid()), "PYTHONPATH": path},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=None if output is None else subprocess.PIPE,
        stderr=None if output is None else subprocess.STDOUT,
        # Its own session: Ctrl-C then reaches only this process, which ends the others in order.
        start_new_session=True,
    )
    listener = threading.Thread(target=_listen, args=(child, output), daemon=True)
    listener.start()
    try:
        yield child
    finally:
        stop(child)
        listener.join(STOP_SECONDS)


def _listen(child: subprocess.Popen[bytes], output: deque[str] | None) -> None:
    """Reads all output: a full pipe would block the process."""
    if child.stdout is not None and output is not None:
        with child.stdout:
            output.extend(line.decode(errors="replace") for line in child.stdout)


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and its own children. An active run ends its training and keeps its checkpoint."""
    for number, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def is_port_used(port: int) -> bool:
    """Whether another program listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a program that has just ended blocks no port
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
