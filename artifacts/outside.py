"""Whether a path is outside all stores: `gc` removes what a store does not know."""

from pathlib import Path

from artifacts.errors import StoreError


def store_around(path: Path) -> Path | None:
    """Returns the store that `path` is, or is within; None if there is none."""
    place = path.resolve()
    return next((one for one in (place, *place.parents) if (one / "format.json").is_file()), None)


def check_outside(path: Path, shown: str = "") -> None:
    """Raises StoreError for a path within a store. `shown`: the path as an error names it."""
    if (around := store_around(path)) is not None:
        raise StoreError(f"{shown or path}: inside the store {around}; choose a folder outside")
