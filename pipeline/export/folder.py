"""Writes a folder completely or not at all."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.paths import is_new_folder

MARK = "export.json"
"""File that identifies an export, which may be replaced. Its `files` are all files that the export wrote."""


def check_out(out: Path, overwrite: bool) -> None:
    """Raises InputError if `out` cannot become an export: it is a file, or a folder that is not empty.

    With `overwrite` it may be an earlier export without additional files.
    """
    for path in (out, *_temporary_folders(out)):
        path.exists()  # raises OSError for a name that is too long
    if is_new_folder(out):
        return
    if not out.is_dir():
        raise InputError(f"{out}: a file, not a folder")
    if not overwrite:
        raise InputError(f"{out}: not empty; --overwrite replaces an earlier export")
    if not (out / MARK).is_file():
        raise InputError(f"{out}: not an earlier export (it has no {MARK}); --overwrite does not replace it")
    added = _added(out)
    if added is not None:
        raise InputError(
            f"{added}: not a file of the earlier export; --overwrite replaces nothing; move the file away first"
        )


def _temporary_folders(out: Path) -> tuple[Path, Path]:
    """Returns the temporary folders of the new export and of the earlier one before its removal."""
    return out.with_name(f".{out.name}.partial"), out.with_name(f".{out.name}.earlier")


def mark(folder: Path, fields: dict[str, Any]) -> None:
    """Writes export.json: `fields`, and the files in `folder`."""
    files = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    (folder / MARK).write_text(json.dumps({**fields, "files": [*files, MARK]}, indent=1) + "\n", "utf-8")


def read_mark(out: Path) -> dict[str, Any] | None:
    """Returns the content of export.json, whose `files` are a list of names; None if it cannot be read."""
    try:
        fields = json.loads((out / MARK).read_bytes())
        if all(isinstance(name, str) for name in fields["files"]):
            return dict(fields)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def _added(out: Path) -> Path | None:
    """Returns the first file or folder in `out` that the export did not write; None if there is none."""
    fields = read_mark(out)
    if fields is None:
        raise InputError(
            f"{out / MARK}: does not list the files of the earlier export; --overwrite replaces nothing; "
            "remove the folder, or export to another folder"
        )
    files = [out / name for name in fields["files"]]
    written = {one for file in files for one in (file, *file.parents)}
    return next((path for path in sorted(out.rglob("*")) if path not in written), None)


@contextmanager
def whole(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a temporary folder that replaces `out` when the block ends; it is removed if the block raises.

    The next export removes the files of a killed one. Raises InputError if another export writes `out`, and as
    `check_out` does, before and after the block.
    """
    partial, earlier = _temporary_folders(out)
    if earlier.exists() and not out.exists():  # killed between the two renames below
        earlier.rename(out)
    partial.mkdir(exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        _lock(descriptor, partial, out)
        _empty(partial)
        try:
            check_out(out, overwrite)
            yield partial
            check_out(out, overwrite)  # another may have created it meanwhile
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
        own = os.fstat(descriptor).st_ino == partial.stat().st_ino  # else another has just finished
    except (BlockingIOError, FileNotFoundError):
        own = False
    if not own:
        raise InputError(f"{out}: another export is writing it")


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
