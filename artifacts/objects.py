"""Objects: folders of files, each named by the digest of its manifest."""

import hashlib
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_IMODE
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from artifacts import files, names
from artifacts.keys import canonical
from artifacts.schema import Count, Hex, first_line
from artifacts.sources import SETTLED_NS

MANIFEST = "manifest.json"
DIGEST = re.compile("[0-9a-f]{64}")
"""The name of an object's folder."""


class Entry(NamedTuple):
    """A line of the manifest."""

    name: str
    """Relative, with slashes."""
    size: int
    sha256: str


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    size: Count
    sha256: Hex


class _Manifest(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    files: Annotated[list[_File], FailFast(), Field(min_length=1)]


def seal(folder: Path) -> tuple[str, int]:
    """Hashes all files, writes the manifest and flushes everything to disk. Returns the object's digest and bytes.

    Modes become those of a new file under the umask (some libraries write 0600, useless in a shared store).
    Raises ValueError for a link, a special file, a manifest that the stage wrote, and an empty folder.
    """
    paths = sorted(_files(folder))
    if not paths:
        raise ValueError("the stage wrote no file")
    with ThreadPoolExecutor(files.THREADS) as pool:
        digests = list(pool.map(_hash_and_sync, paths))
    entries = [
        Entry(path.relative_to(folder).as_posix(), path.stat().st_size, digest)
        for path, digest in zip(paths, digests, strict=True)
    ]
    data = canonical({"files": [entry._asdict() for entry in entries]})
    files.write_file(folder / MANIFEST, data)
    _set_modes(folder, paths)
    return hashlib.sha256(data).hexdigest(), sum(entry.size for entry in entries)


def problem(folder: Path, digest: str, deep: bool) -> str | None:
    """Returns the fault of the object `digest` in `folder`, None if whole. Checks sizes; `deep` hashes every file."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError:
        if os.path.lexists(folder) and not folder.is_dir():
            return "is not a folder"
        return f"{MANIFEST} is missing" if folder.is_dir() else "is missing"
    if hashlib.sha256(data).hexdigest() != digest:
        return f"{MANIFEST} was changed"
    try:
        entries = parse_manifest(data)
    except ValueError as error:
        return f"{MANIFEST} {error}"
    wrong = next((line for entry in entries if (line := _wrong_size(folder, entry))), None)
    if wrong is not None or not deep:
        return wrong
    states = {path: _state(path) for path in (folder / MANIFEST, *(folder / entry.name for entry in entries))}
    with ThreadPoolExecutor(files.THREADS) as pool:
        wrong = next((line for line in pool.map(_wrong_bytes, [folder] * len(entries), entries) if line), None)
    # A file that was just written may change again within one tick of the clock.
    if wrong is None and all(state and max(state[2:]) < time.time_ns() - SETTLED_NS for state in states.values()):
        _hashed[folder] = states
    return wrong


def around(path: Path) -> list[Path]:
    """Returns the objects, of any store, that contain the path after links are resolved."""
    real = Path(os.path.realpath(path))
    folders = [one for one in (real, *real.parents) if one.parent.name == "objects" and DIGEST.fullmatch(one.name)]
    return [folder for folder in folders if folder.is_dir()]


def changed(path: Path) -> bool:
    """Whether a file of an object differs from the manifest in its folder; False without a manifest."""
    try:
        listed = {entry.name: entry for entry in parse_manifest((path.parent / MANIFEST).read_bytes())}
    except FileNotFoundError:
        return False
    except (OSError, ValueError, LookupError, TypeError):
        return True
    return path.name in listed and _wrong_bytes(path.parent, listed[path.name]) is not None


State = tuple[int, int, int, int]
"""Size, inode, mtime and ctime in ns."""
_hashed: dict[Path, dict[Path, State | None]] = {}
"""Objects that this process has hashed and found whole, with the state of their files before that."""


def hashed(folder: Path) -> bool:
    """Whether this process has checked the object (`problem`, deep), and none of its files has changed since."""
    known = _hashed.get(folder, {})
    return bool(known) and all(_state(path) == state for path, state in known.items())


def digests(folder: Path) -> dict[str, str]:
    """Returns {name: SHA-256} of the files of an object that is `hashed`; empty for any other object."""
    return (
        {entry.name: entry.sha256 for entry in parse_manifest((folder / MANIFEST).read_bytes())}
        if hashed(folder)
        else {}
    )


def _state(path: Path) -> State | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def parse_manifest(manifest: bytes) -> list[Entry]:
    """Returns a manifest's entries. Raises ValueError (one line) for a fault or a name outside its folder."""
    try:
        entries = [Entry(one.name, one.size, one.sha256) for one in _Manifest.model_validate_json(manifest).files]
    except ValidationError as error:
        raise ValueError(first_line(error)) from None
    file_names = [entry.name for entry in entries]
    for name in file_names:
        if fault := names.fault(name):
            raise ValueError(f"names {names.one_line(name)}, which {fault}")
    if duplicate := names.clash([*file_names, MANIFEST]):
        raise ValueError(f"names {names.one_line(duplicate)} twice")
    return entries


def size(folder: Path) -> int:
    """Returns the bytes of all files below `folder`, or of `folder` if it is a file; links are not followed."""
    if folder.is_symlink() or not folder.is_dir():
        return folder.lstat().st_size
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ValueError(f"{path.relative_to(folder)}: an artifact may contain plain files only")
        if path == folder / MANIFEST:
            raise ValueError(f"{MANIFEST}: the store reserves this name")
        if path.is_file():
            yield path


def _hash_and_sync(path: Path) -> str:
    digest = files.sha256(path)
    files.sync(path)
    return digest


def _set_modes(folder: Path, paths: list[Path]) -> None:
    file_mode = S_IMODE((folder / MANIFEST).stat().st_mode)
    folder_mode = S_IMODE(folder.stat().st_mode)
    for path in paths:
        path.chmod(file_mode)
    for parent in sorted({parent for path in paths for parent in path.parents if parent.is_relative_to(folder)}):
        parent.chmod(folder_mode)
        files.sync(parent)


def _wrong_size(folder: Path, entry: Entry) -> str | None:
    try:
        size_found = os.stat(folder / entry.name).st_size
    except OSError:
        return f"{entry.name} is missing"
    return None if size_found == entry.size else f"{entry.name} has {size_found} bytes, not {entry.size}"


def _wrong_bytes(folder: Path, entry: Entry) -> str | None:
    try:
        return None if files.sha256(folder / entry.name) == entry.sha256 else f"{entry.name} was changed"
    except OSError as error:
        return f"{entry.name} cannot be read ({str(error.strerror).lower()})"
