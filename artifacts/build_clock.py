"""How long a build has been at work, with the parts of it that were interrupted.

A part counts up to its last checkpoint: what it did after that is done again. work/KEY/seconds holds what earlier parts
have taken, and its mtime is when the part under way began.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Clock:
    """Runs while a build is at work, not while it waits for a device before or for others after."""

    seconds = 0.0
    """Of all parts of the build, when the work is done."""

    @contextmanager
    def at_work(self, work: Path) -> Iterator[None]:
        """`work`: the build's folder, which holds `checkpoints`."""
        before, begun = _begin(work), time.monotonic()
        yield
        self.seconds = before + time.monotonic() - begun


def _begin(work: Path) -> float:
    """Seconds of the earlier parts of the build in `work`; from now on a new part runs."""
    clock = work / "seconds"
    seconds = 0.0
    with suppress(FileNotFoundError, ValueError):
        seconds = float(clock.read_text()) + max(0.0, _last_checkpoint(work) - clock.stat().st_mtime)
    clock.write_text(str(seconds))
    return seconds


def _last_checkpoint(work: Path) -> float:
    return max((path.stat().st_mtime for path in (work / "checkpoints").rglob("*") if path.is_file()), default=0.0)
