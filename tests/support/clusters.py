"""A Ray cluster of this machine's own, and who works on it.

Several test files use it. They share a group of pytest-xdist: each looks at all of Ray's processes on this machine.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from flows.deploy.processes import free_port, stop

START_SECONDS = 120
END_SECONDS = 15
OPEN = {"RAY_AUTH_MODE": "disabled"}
"""For whoever starts or asks a cluster: without the token that Ray would write into the user's home."""


@contextmanager
def head(environment: dict[str, str], cores: int = 2) -> Iterator[str]:
    """The address of a cluster of one machine."""
    port, folder = free_port(), tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a socket's path may have 107 letters
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"),
        *(f"--ray-client-server-port={free_port()}", f"--num-cpus={cores}", f"--object-store-memory={1 << 27}"),
        *("--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"),
    ]
    said = Path(folder, "said")
    with said.open("w") as out:
        process = subprocess.Popen(
            command, env={**environment, **OPEN}, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        end = time.monotonic() + START_SECONDS
        while "Ray runtime started" not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < end, said.read_text()
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def children() -> list[psutil.Process]:
    """The processes that make shards for a worker of Ray's."""
    return [one for one in _running("pipeline.runtime.child") if (parent := one.parent()) and _of_ray(parent)]


def nobody_works() -> None:
    """Waits for the end of `children`: cancelled ones die with their worker, which the driver does not wait for."""
    wait_until_gone(children)


def raylets() -> set[psutil.Process]:
    """All of Ray that runs on this machine."""
    return {one for one in psutil.process_iter(["name"]) if one.info["name"] in ("raylet", "gcs_server")}


def wait_until_gone(find: Callable[[], Collection[psutil.Process]]) -> None:
    end = time.monotonic() + END_SECONDS
    while left := find():
        assert time.monotonic() < end, left
        time.sleep(0.2)


def _running(word: str) -> Iterator[psutil.Process]:
    for one in psutil.process_iter(["cmdline"]):
        if word in (one.info["cmdline"] or ()):
            yield one


def _of_ray(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[0].startswith("ray::")
    except (psutil.Error, IndexError):
        return False
