"""Finds files in a source's folder that its reader does not read, for a notice; READMEs and the like do not count."""

import os
from collections.abc import Iterable
from pathlib import Path

ABOUT = {"readme", "license", "dataset_infos", "dataset_dict"}
"""Names, without endings and in lower case, of files that describe a dataset."""


def unread(folder: Path, read: Iterable[Path | None], patterns: Iterable[str] = ("**/*",)) -> dict[str, Path]:
    """Returns {name in the folder: real path}, sorted, of files that match a pattern, are not hidden and not `read`."""
    read_paths = {os.path.realpath(path) for path in read if path}
    found = {path.relative_to(folder).as_posix(): path for pattern in patterns for path in folder.glob(pattern)}
    return {
        name: Path(os.path.realpath(path))
        for name, path in sorted(found.items())
        if path.is_file()
        and not any(part.startswith(".") for part in name.split("/"))
        and path.name.split(".")[0].lower() not in ABOUT
        and os.path.realpath(path) not in read_paths
    }
