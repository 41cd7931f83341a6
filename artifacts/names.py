"""Names of an artifact's or a pack's files: relative, with slashes, and leading nowhere but below their folder."""

from collections.abc import Iterable
from unicodedata import category

CONTROL = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of what is no text in a line: control characters, halves of a character, line breaks."""
LONGEST = 1024
"""Bytes of a name: with the store's folder before it, it fits the 4,096 that a path may have."""
LONGEST_PART = 255
"""Bytes of a folder's or file's own name, by file systems."""
DEEPEST = 32
"""Parts of a name."""
SHOWN = 200
"""Characters of a name, or of what is wrong with a file, in a message."""


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


def one_line(text: str, longest: int = SHOWN) -> str:
    """The text, or its first characters, as part of one line (see `escaped`)."""
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…")


def escaped(text: str) -> str:
    """The text in one line: what is no text there is escaped."""
    return "".join(repr(c)[1:-1] if category(c) in CONTROL else c for c in text)
