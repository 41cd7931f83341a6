"""File locks that the kernel frees when their holder dies, even by kill -9."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, and for what."""

    host: str
    pid: int
    since: str
    """ISO 8601, UTC."""
    stage: str
    node: str
    inputs: dict[str, str]
    """Identities of the artifacts that the holder reads."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since[:19]}Z"


def holder(stage: str, node: str, inputs: Mapping[str, str]) -> Holder:
    """Returns this process as a holder."""
    return Holder(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(), stage, node, dict(inputs))


@contextmanager
def hold(path: Path, who: Holder | None = None, on_wait: Callable[[Holder], None] | None = None) -> Iterator[None]:
    """Waits for the lock without a limit and holds it; `on_wait` is called once for each earlier holder."""
    descriptor = _try(path)
    seen: Holder | None = None
    while descriptor is None:
        other = read_holder(path)
        if on_wait is not None and other is not None and other != seen:
            on_wait(other)
        seen = other
        # Polled, because a thread that is blocked in flock cannot be cancelled.
        time.sleep(POLL_SECONDS)
        descriptor = _try(path)
    try:
        _write_holder(descriptor, who)
        yield
    finally:
        _release(descriptor)


@contextmanager
def try_hold(path: Path) -> Iterator[bool]:
    """Holds the lock if it is free; yields whether it was."""
    descriptor = _try(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _release(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock, without writing anything; True if that cannot be known."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def read_holder(path: Path) -> Holder | None:
    """Returns the lock's holder, if it is recorded; only valid while the lock is held."""
    try:
        return Holder(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


_held: set[int] = set()


def _try(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between open and flock the file may have been removed: a lock on a removed file blocks no other process.
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            _held.add(descriptor)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _write_holder(descriptor: int, who: Holder | None) -> None:
    if who is not None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(who)).encode(), 0)


def _release(descriptor: int) -> None:
    if descriptor in _held:
        _held.remove(descriptor)
        os.ftruncate(descriptor, 0)
        os.close(descriptor)


def _close_in_child() -> None:
    # A forked worker shares the lock: an open copy would outlive a killed parent.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
