"""Starts the fork server that makes the tests' child processes start quickly: tests/support/warm/."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.runtime.host import can_fork

FOLDER = Path(__file__).parent / "warm"
SOCKET = "WARM_SOCKET"
"""The variable with the server's address. A process without it starts its children from scratch."""


@contextmanager
def fork_server() -> Iterator[None]:
    """While the block runs, children of this process and of its processes are forks of one server.

    Where a process must not fork, they start from scratch.
    """
    if not can_fork():
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        settled = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"}
        plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONINSPECT")}
        server = subprocess.Popen(
            [sys.executable, "-P", str(FOLDER / "fork_server.py"), path],
            env={**plain, **settled},
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        os.environ[SOCKET] = path
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
        try:
            yield
        finally:
            server.kill()
            server.wait()
