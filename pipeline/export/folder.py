"""A folder that is there as a whole or not at all."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import InputError

MARK = "export.json"
"""What tells an export from a folder that must not be replaced. Its `files` are all that the export wrote."""


def check(out: Path, overwrite: bool) -> None:
    """Raise InputError where `out` cannot become an export: a file, or a folder with something in it.

    With `overwrite` an earlier export may be there, if nothing has been added to it.
    """
    for path in (out, *_beside(out)):
        path.exists()  # raises OSError for a name that is too long
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: a file, not a folder")
    if not out.exists() or not any(out.iterdir()):
        return
    if not overwrite:
        raise InputError(f"{out}: not empty; --overwrite replaces an earlier export")
    if not (out / MARK).is_file():
        raise InputError(f"{out}: no earlier export (it has no {MARK}), so that --overwrite leaves it as it is")
    added = _added(out)
    if added is not None:
        raise InputError(
            f"{added}: not of the earlier export, so that --overwrite leaves all as it is; move it away first"
        )


def _beside(out: Path) -> tuple[Path, Path]:
    """Where the next export is written, and where the earlier one waits to be removed."""
    return out.with_name(f".{out.name}.partial"), out.with_name(f".{out.name}.earlier")


def mark(made: Path, named: dict[str, Any]) -> None:
    """Write export.json: what is `named`, and the files that `made` then holds."""
    files = [str(path.relative_to(made)) for path in sorted(made.rglob("*")) if path.is_file()]
    (made / MARK).write_text(json.dumps({**named, "files": [*files, MARK]}, indent=1) + "\n", "utf-8")


def _added(out: Path) -> Path | None:
    """The first file or folder that the export in `out` did not write."""
    try:
        files = [out / name for name in json.loads((out / MARK).read_bytes())["files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{out / MARK}: does not list the files of the earlier export, so that --overwrite leaves all as it is; "
            "remove the folder, or export to another place"
        ) from None
    written = {one for file in files for one in (file, *file.parents)}
    return next((path for path in sorted(out.rglob("*")) if path not in written), None)


@contextmanager
def whole(out: Path, overwrite: bool) -> Iterator[Path]:
    """A folder beside `out` that takes its place when the block ends; none is left where the block raises.

    What a killed one has left is removed by the next. Raises InputError where another is at it, and where `check` does,
    before the block and after it.
    """
    partial, earlier = _beside(out)
    if earlier.exists() and not out.exists():  # killed between the two renames below
        earlier.rename(out)
    partial.mkdir(exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        _lock(descriptor, partial, out)
        _empty(partial)
        try:
            check(out, overwrite)
            yield partial
            check(out, overwrite)  # it may have come meanwhile
            shutil.rmtree(earlier, ignore_errors=True)
            if out.exists() and any(out.iterdir()):
                out.rename(earlier)
            partial.rename(out)
            shutil.rmtree(earlier, ignore_errors=True)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)


def _lock(descriptor: int, partial: Path, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = os.fstat(descriptor).st_ino == partial.stat().st_ino  # else another has just finished
    except (BlockingIOError, FileNotFoundError):
        mine = False
    if not mine:
        raise InputError(f"{out}: another export is writing it")


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
