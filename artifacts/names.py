"""Names of an artifact's or a pack's files: relative, with slashes, and leading nowhere but below their folder."""

from collections.abc import Iterable
from pathlib import Path
from unicodedata import category

from artifacts.errors import StoreError
from artifacts.schema import CONTROL

LONGEST = 1024
"""Bytes of a name: with the store's folder before it, it fits the 4,096 that a path may have."""
LONGEST_PART = 255
"""Bytes of a folder's or file's own name, by file systems."""
DEEPEST = 32
"""Parts of a name."""
SHOWN = 100
"""Characters of a name in a message."""


def fault(name: str) -> str | None:
    """What keeps `name` from being a file's; None: nothing does."""
    parts = name.split("/")
    if any(category(character) in CONTROL for character in name):
        return "holds a control character"
    if any(part in ("", ".", "..") for part in parts):
        return "leads elsewhere"
    if len(name.encode()) > LONGEST or len(parts) > DEEPEST or any(len(p.encode()) > LONGEST_PART for p in parts):
        return "is too long"
    return None


def clash(names: Iterable[str]) -> str | None:
    """The first name that is given twice, or to a file and to a folder; None where there is none."""
    seen: set[str] = set()
    folders: set[str] = set()
    for name in sorted(names):
        parts = name.split("/")
        folders |= {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if name in seen:
            return name
        seen.add(name)
    return next((name for name in sorted(seen & folders)), None)


def shown(name: str) -> str:
    """A name as a message shows it, whatever it holds."""
    return printable(name if len(name) <= SHOWN else f"{name[:SHOWN]}…")


def printable(text: str) -> str:
    """The text as one line of a terminal, what is no text in it escaped."""
    return "".join(c if category(c) not in CONTROL else repr(c)[1:-1] for c in text)


def check_path(path: Path) -> None:
    """Raises `StoreError` for a path that is not UTF-8: Parquet, JSON and Java take no other."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise StoreError(f"{printable(str(path))}: the path is not UTF-8; give one that is, such as a link") from None
