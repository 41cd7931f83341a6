"""How long a build that was interrupted has been at work before.

A part counts up to its last checkpoint: what it did after that is done again. work/KEY/seconds holds what earlier parts
have taken, and its mtime is when the part under way began.
"""

from contextlib import suppress
from pathlib import Path


def begin(work: Path) -> float:
    """Seconds of the earlier parts of the build in `work`; from now on a new part runs."""
    clock = work / "seconds"
    seconds = 0.0
    with suppress(FileNotFoundError, ValueError):
        seconds = float(clock.read_text()) + max(0.0, _last_checkpoint(work) - clock.stat().st_mtime)
    clock.write_text(str(seconds))
    return seconds


def _last_checkpoint(work: Path) -> float:
    return max((path.stat().st_mtime for path in (work / "checkpoints").rglob("*") if path.is_file()), default=0.0)
