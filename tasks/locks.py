"""Locks of GPUs: one run at a time on each GPU, for all stores. The kernel releases the lock of a process that ends."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pipeline.runtime.work import DeviceName


def gpus() -> list[int]:
    """Returns the driver's indices of the GPUs that this process may use. Loads no CUDA."""
    try:
        listing = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    uuids = {int(index): uuid.strip() for index, uuid in (line.split(",") for line in listing.splitlines())}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return sorted(uuids)
    names = [name.strip() for name in visible.split(",")]
    return sorted(i for i, uuid in uuids.items() if str(i) in names or any(n and uuid.startswith(n) for n in names))


@contextmanager
def turn_on_gpus(device: DeviceName, on_wait: Callable[[int], None], folder: Path | None = None) -> Iterator[None]:
    """Holds this machine's visible GPUs of NVIDIA; calls `on_wait` with the index of one that another run holds."""
    folder = folder or Path(tempfile.gettempdir())
    with ExitStack() as held:
        # In order of index, so that two runs cannot wait for each other.
        for index in gpus() if device in ("auto", "cuda") else []:
            held.enter_context(_lock(folder / f"cocondenser-gpu-{index}.lock", partial(on_wait, index)))
        yield


@contextmanager
def _lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    # Opened for reading, which suffices for flock: the file may be another user's, in a folder with the sticky bit.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
