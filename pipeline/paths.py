"""Paths as users write them: in recipes, settings, options and the environment."""

import errno
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from pipeline.errors import InputError
from pipeline.notices import one_line


class UnknownUser(InputError, ValueError):
    """Unknown user in `~user`. A ValueError too, so that pydantic and typer add the field or option."""


def expand_home(path: str | Path, field: str = "") -> Path:
    """Returns the path with `~` and `~user` replaced by the home folder.

    Raises UnknownUser if no user has that name. `field`: begins the message, for callers whose error names no field.
    """
    written, expanded = os.fspath(path), os.path.expanduser(path)
    if written.startswith("~") and expanded == written:
        user = written.split("/")[0].removeprefix("~")
        why = f"there is no user {one_line(user)}" if user else "the home of this user is not known"
        what = f"{one_line(written)}: {why}; give the absolute path"
        raise UnknownUser(f"{field}: {what}" if field else what)
    return Path(expanded)


def relative_to(folder: Path | None, path: str | Path) -> Path:
    """Returns `path`, relative to `folder` unless it is absolute. None: relative to the current folder."""
    return (folder or Path()) / expand_home(path)


def without_common_folder(paths: Sequence[str]) -> list[str]:
    """Returns the paths without the folders with which all of them begin."""
    levels = zip(*(Path(path).parent.parts for path in paths), strict=False)
    common = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, levels))
    return [str(Path(*Path(path).parts[common:])) for path in paths]


def is_new_folder(path: Path) -> bool:
    """Whether a folder can be written there without changing anything: nothing exists, or an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def check_new_folder(path: Path, option: str) -> None:
    """Raises InputError if `path` is neither new nor an empty folder. `option`: names the path, such as `--out`."""
    if not is_new_folder(path):
        raise InputError(f"{option} {path}: must be a new or empty folder")


def broken_link(path: Path) -> str:
    """Returns which link on a path leads nowhere, and why; empty if there is none."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            target = os.readlink(part)
            why = "leads back to itself" if _loops(part) else f"leads to {one_line(target)}, which does not exist"
            return f"the link {part} {why}"
    return ""


def _loops(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def absolute_path(path: Path | str) -> Path | str:
    """Returns the absolute path, for messages: a relative one does not show where the program looked. A string (an
    address) is returned unchanged.
    """
    return path.absolute() if isinstance(path, Path) else path
