"""What was measured of this machine, kept in a file of the user's cache."""

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path


def read_figures(path: Path) -> dict[str, float]:
    """Returns {what: figure} of the file; what is damaged, or not positive, is left out."""
    try:
        figures = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(figures, dict):
        return {}
    return {name: x for name, x in figures.items() if isinstance(x, float) and 0 < x < math.inf}


def write_figures(path: Path, figures: Mapping[str, float]) -> None:
    """Adds the figures to the file. If it cannot be written, they are measured again next time."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_text(json.dumps({**read_figures(path), **figures}) + "\n")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
