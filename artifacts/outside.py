"""Whether a path is outside all stores: `gc` removes what a store does not know."""

import json
from pathlib import Path

from artifacts.errors import StoreError


def store_around(path: Path) -> Path | None:
    """Returns the store that `path` is, or is within; None if there is none."""
    place = path.resolve()
    return next((one for one in (place, *place.parents) if _is_store(one)), None)


def _is_store(folder: Path) -> bool:
    """Other programs have a format.json too, such as one with a formatter's settings."""
    try:
        version = json.loads((folder / "format.json").read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(version, int)


def check_outside(path: Path, shown: str = "") -> None:
    """Raises StoreError for a path within a store. `shown`: the path as an error names it."""
    if (around := store_around(path)) is not None:
        raise StoreError(f"{shown or path}: inside the store {around}; choose a folder outside")
