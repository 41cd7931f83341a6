"""File names inside an artifact or a pack: relative, with slashes, and always below their folder."""

from collections.abc import Iterable
from unicodedata import category

CONTROL = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that are not text in a line: control characters, surrogates, line breaks."""
LONGEST = 1024
"""Bytes of a name: with the store's folder it fits into a path of 4,096."""
LONGEST_PART = 255
"""Bytes of one folder's or file's own name, a limit of file systems."""
DEEPEST = 32
"""Largest number of parts of a name."""
SHOWN = 200
"""Characters of a name, or of a fault, in a message."""


def fault(name: str) -> str | None:
    """Returns why `name` cannot be a file's name; None if it can."""
    parts = name.split("/")
    if any(category(character) in CONTROL for character in name):
        return "holds a control character"
    if any(part in ("", ".", "..") for part in parts):
        return "leads out of its folder"
    if len(name.encode()) > LONGEST or len(parts) > DEEPEST or any(len(p.encode()) > LONGEST_PART for p in parts):
        return "is too long"
    return None


def clash(names: Iterable[str]) -> str | None:
    """Returns the first name that is duplicated, or is both a file and a folder; None if there is none."""
    seen: set[str] = set()
    folders: set[str] = set()
    for name in sorted(names):
        parts = name.split("/")
        folders |= {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if name in seen:
            return name
        seen.add(name)
    return next((name for name in sorted(seen & folders)), None)


def one_line(text: str, longest: int = SHOWN) -> str:
    """Returns the text, cut to `longest` characters, as part of one line (see `escaped`)."""
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…")


def escaped(text: str) -> str:
    """Returns the text in one line: control characters and line breaks are escaped."""
    return "".join(repr(c)[1:-1] if category(c) in CONTROL else c for c in text)
