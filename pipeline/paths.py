"""Paths as users write them: in recipes, settings, options and the environment."""

import os
from pathlib import Path

from pipeline.errors import InputError
from pipeline.notices import one_line


class UnknownUser(InputError, ValueError):
    """pydantic and typer take a ValueError, and name its field or option."""


def given(path: str | Path, field: str = "") -> Path:
    """The path with `~` and `~user` made that home's folder.

    Raises UnknownUser where no user has that name; `field` is what names it where nothing else does.
    """
    written, found = os.fspath(path), os.path.expanduser(path)
    if written.startswith("~") and found == written:
        user = written.split("/")[0].removeprefix("~")
        why = f"there is no user {one_line(user)}" if user else "the home of this user is not known"
        what = f"{one_line(written)}: {why}; give the absolute path"
        raise UnknownUser(f"{field}: {what}" if field else what)
    return Path(found)


def beside(folder: Path | None, path: str | Path) -> Path:
    """A path that a file in `folder` gives: a relative one counts from there. None: from the current folder."""
    return (folder or Path()) / given(path)


def shown(path: Path | str) -> Path | str:
    """As messages name it: a relative path does not tell where it was looked for. A string, an address, stays."""
    return path.absolute() if isinstance(path, Path) else path
