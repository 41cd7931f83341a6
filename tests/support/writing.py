"""Files that tests write."""

from pathlib import Path


def put(folder: Path, name: str, *lines: str, end: str = "\n") -> Path:
    """The file `name` of `folder` with these lines, in UTF-8."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())
    return path
