"""Measures how long a build works, including its interrupted attempts.

An attempt counts up to its last checkpoint, because later work is repeated. work/KEY/seconds holds the seconds of
earlier attempts; its mtime is the start of the current attempt.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Clock:
    """Measures the time at work, without waiting for a device before it or for other processes after it."""

    seconds = 0.0
    """Total over all attempts of the build, set when the work ends."""

    @contextmanager
    def at_work(self, work: Path) -> Iterator[None]:
        """Measures the block. `work`: the build's folder, which contains `checkpoints`."""
        earlier_seconds, started_at = _begin(work), time.monotonic()
        yield
        self.seconds = earlier_seconds + time.monotonic() - started_at


def _begin(work: Path) -> float:
    """Starts a new attempt of the build in `work`. Returns the seconds of its earlier attempts."""
    clock = work / "seconds"
    seconds = 0.0
    with suppress(FileNotFoundError, ValueError):
        seconds = float(clock.read_text()) + max(0.0, _last_checkpoint(work) - clock.stat().st_mtime)
    clock.write_text(str(seconds))
    return seconds


def _last_checkpoint(work: Path) -> float:
    return max((path.stat().st_mtime for path in (work / "checkpoints").rglob("*") if path.is_file()), default=0.0)
