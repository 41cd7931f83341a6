"""Files in a source's folder that its reader does not read, for a notice. What only describes a data set is none."""

import os
from collections.abc import Iterable
from pathlib import Path

ABOUT = {"readme", "license", "dataset_infos", "dataset_dict"}
"""Names, without endings and in small letters, of what describes a data set."""


def unread(folder: Path, read: Iterable[Path | None], patterns: Iterable[str] = ("**/*",)) -> dict[str, Path]:
    """{name in the folder: real path}, by name, of the files that match a pattern, are not hidden and not `read`."""
    taken = {os.path.realpath(path) for path in read if path}
    found = {path.relative_to(folder).as_posix(): path for pattern in patterns for path in folder.glob(pattern)}
    return {
        name: Path(os.path.realpath(path))
        for name, path in sorted(found.items())
        if path.is_file()
        and not any(part.startswith(".") for part in name.split("/"))
        and path.name.split(".")[0].lower() not in ABOUT
        and os.path.realpath(path) not in taken
    }
