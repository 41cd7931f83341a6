"""Content digests of source files and folders, with a side cache so that a second look is instant.

A file's digest is the SHA-256 of its bytes; a folder's that of its sorted relative names and their digests. Neither
holds a path outside the folder, a time or a mode. `__pycache__` and dangling links are passed over, links followed.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from artifacts import files, locks
from artifacts.errors import StoreError

SETTLED_NS = 2_000_000_000
"""A file younger than this may change again within one tick of its file system's clock: hashed, but not remembered."""

Entry = list[int | str]
"""Size, mtime ns, ctime ns, SHA-256. The ctime unmasks a file replaced by one of equal size and restored mtime."""


def digests(sources: Mapping[str, Path], cache: Path) -> dict[str, str]:
    """Name -> SHA-256 of the content of each file or folder. `cache`: the JSON file of the side cache.

    Safe beside other processes that write the same cache. Raises `StoreError` if a source is missing, cannot be read,
    or changes while it is read.
    """
    try:
        listed = {name: dict(_listing(Path(os.path.abspath(path)))) for name, path in sources.items()}
        known = _load(cache)
        wanted = {path: stat for listing in listed.values() for path, stat in listing.values()}
        sha = {path: str(known[path][3]) for path, stat in wanted.items() if known.get(path, [])[:3] == _state(stat)}
        missing = [path for path in wanted if path not in sha]
        with ThreadPoolExecutor(files.THREADS) as pool:
            sha |= zip(missing, pool.map(_hash, missing, [wanted[path] for path in missing]), strict=True)
    except OSError as error:
        raise StoreError(f"{error.filename}: {str(error.strerror).lower()}") from None
    fresh: dict[str, Entry] = {path: [*_state(wanted[path]), sha[path]] for path in missing if _settled(wanted[path])}
    if fresh:
        # A cache that cannot be written costs time only: a store may be read-only to this user, or its disk full.
        with suppress(OSError):
            _remember(cache, fresh)
    return {name: _digest({inner: sha[path] for inner, (path, _) in found.items()}) for name, found in listed.items()}


def prune(cache: Path) -> None:
    """Forgets files that are gone."""
    if not cache.exists():
        return
    with suppress(OSError), locks.hold(cache.with_suffix(".lock")):
        files.write(cache, _dump({path: entry for path, entry in _load(cache).items() if os.path.exists(path)}))


Listing = Iterator[tuple[str, tuple[str, os.stat_result]]]
"""Name in the folder ("" for the source itself, a file) -> absolute path, stat."""


def _listing(path: Path) -> Listing:
    stat = path.stat()
    if S_ISDIR(stat.st_mode):
        yield from _walk(str(path), "", ((stat.st_dev, stat.st_ino),))
    elif S_ISREG(stat.st_mode):
        yield "", (str(path), stat)
    else:
        raise StoreError(f"{path}: neither a file nor a folder")


def _walk(folder: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Listing:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                stat = entry.stat()
            except FileNotFoundError:
                continue
            if S_ISREG(stat.st_mode):
                yield prefix + entry.name, (entry.path, stat)
            elif S_ISDIR(stat.st_mode) and entry.name != "__pycache__":
                inode = (stat.st_dev, stat.st_ino)
                if inode not in above:
                    yield from _walk(entry.path, f"{prefix}{entry.name}/", (*above, inode))


def _state(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _settled(stat: os.stat_result) -> bool:
    return max(stat.st_mtime_ns, stat.st_ctime_ns) < time.time_ns() - SETTLED_NS


def _hash(path: str, stat: os.stat_result) -> str:
    try:
        digest = files.sha256(Path(path))
    except OSError as error:  # one from read, unlike one from open, does not say of which file
        raise StoreError(f"{path}: {str(error.strerror).lower()}") from None
    if _state(os.stat(path)) != _state(stat):
        raise StoreError(f"{path}: changed while it was read")
    return digest


def _digest(listing: Mapping[str, str]) -> str:
    if "" in listing:
        return listing[""]
    lines = sorted(os.fsencode(name) + b"\0" + digest.encode() + b"\n" for name, digest in listing.items())
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _load(cache: Path) -> dict[str, Entry]:
    try:
        return json.loads(cache.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}


def _dump(entries: Mapping[str, Entry]) -> bytes:
    return json.dumps(entries, separators=(",", ":")).encode()


def _remember(cache: Path, fresh: Mapping[str, Entry]) -> None:
    with locks.hold(cache.with_suffix(".lock")):
        files.write(cache, _dump({**_load(cache), **fresh}))
