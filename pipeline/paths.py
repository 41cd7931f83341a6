"""Paths as users write them: in recipes, settings, options and the environment."""

import os
from pathlib import Path


def given(path: str | Path) -> Path:
    """The path with `~` and `~user` made that home's folder; as it is where no user has that name."""
    return Path(os.path.expanduser(path))


def beside(folder: Path | None, path: str | Path) -> Path:
    """A path that a file in `folder` gives: a relative one counts from there. None: from the current folder."""
    return (folder or Path()) / given(path)


def shown(path: Path | str) -> Path | str:
    """As messages name it: a relative path does not tell where it was looked for. A string, an address, stays."""
    return path.absolute() if isinstance(path, Path) else path
