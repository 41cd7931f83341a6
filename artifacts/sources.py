"""Content digests of source files and folders, with a cache so that an unchanged file is hashed once.

A file's digest is the SHA-256 of its bytes; a folder's is that of its sorted relative names and their digests. Paths
outside the folder, times and modes do not count. Links are followed; `__pycache__`, and links that are dangling
or lead to themselves, are skipped.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import ELOOP, ENOENT
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TypeGuard

from artifacts import files, locks
from artifacts.errors import StoreError

SETTLED_NS = 2_000_000_000
"""A younger file may change again within one tick of its file system's clock: it is hashed, but not cached."""

Entry = list[int | str]
"""Size, mtime ns, ctime ns, SHA-256. The ctime reveals a replaced file of equal size and restored mtime."""


def digests(sources: Mapping[str, Path], cache: Path) -> dict[str, str]:
    """Returns name -> SHA-256 of the content of each file or folder. `cache`: the cache's JSON file.

    Names with slashes are files of one source, named by the part before the first slash: `{"numpy/a.py": ...,
    "numpy/b.py": ...}` gives one digest, of `numpy`. Several processes may write the same cache. Raises `StoreError`
    if a source is missing, cannot be read, or changes while it is read.
    """
    try:
        listed: dict[str, Listing] = {}
        for name, path in sources.items():
            source, _, inner = name.partition("/")
            _list(os.path.abspath(path), inner, listed.setdefault(source, {}))
        known = _load(cache)
        wanted = {path: state for listing in listed.values() for path, state in listing.values()}
        sha = {path: str(known[path][3]) for path, state in wanted.items() if known.get(path, [])[:3] == state}
        missing = [path for path in wanted if path not in sha]
        with ThreadPoolExecutor(files.THREADS) as pool:
            sha |= zip(missing, pool.map(_hash, missing, [wanted[path] for path in missing]), strict=True)
    except OSError as error:
        raise StoreError(f"{error.filename}: {str(error.strerror).lower()}") from None
    fresh: dict[str, Entry] = {path: [*wanted[path], sha[path]] for path in missing if _settled(wanted[path])}
    if fresh:
        # A cache that cannot be written (read-only store, full disk) costs only time.
        with suppress(OSError):
            _remember(cache, fresh)
    return {name: _digest({inner: sha[path] for inner, (path, _) in found.items()}) for name, found in listed.items()}


def prune(cache: Path) -> None:
    """Removes entries of missing files from the cache."""
    if not cache.exists():
        return
    with suppress(OSError), locks.hold(cache.with_suffix(".lock")):
        files.write_file(cache, _dump({path: entry for path, entry in _load(cache).items() if os.path.exists(path)}))


def verify(cache: Path) -> list[str]:
    """Hashes all files again. Returns a line for each file whose digest in the cache is wrong.

    Removes wrong entries from the cache if it is writable.
    """
    if not cache.exists():
        return []
    try:
        known = json.loads(cache.read_bytes())
    except (OSError, ValueError, RecursionError):
        known = None
    if not isinstance(known, dict):
        lines, wrong = ["cannot be read, and is forgotten"], set()
    else:
        wrong = {path for path, entry in known.items() if not _is_right(path, entry)}
        lines = [f"the digest of {path} was changed, and is forgotten" for path in sorted(wrong)]
    if lines:
        with suppress(OSError), locks.hold(cache.with_suffix(".lock")):
            files.write_file(cache, _dump({path: entry for path, entry in _load(cache).items() if path not in wrong}))
    return lines


def _is_right(path: str, entry: object) -> bool:
    """Whether an entry has the file's digest, or is stale (of an earlier state of the file) and therefore ignored."""
    if not _is_entry(entry):
        return False
    try:
        return _state(os.stat(path)) != entry[:3] or files.sha256(Path(path)) == entry[3]
    except (OSError, ValueError):
        return True


def _is_entry(entry: object) -> TypeGuard[Entry]:
    return isinstance(entry, list) and [type(value) for value in entry] == [int, int, int, str]


Listing = dict[str, tuple[str, list[int]]]
"""Name in the source ("" if the source is a file) -> absolute path, state."""


def _list(path: str, name: str, listing: Listing) -> None:
    stat = os.stat(path)
    if S_ISREG(stat.st_mode):
        listing[name] = (path, _state(stat))
    elif S_ISDIR(stat.st_mode):
        _walk(path, f"{name}/" if name else "", ((stat.st_dev, stat.st_ino),), listing)
    else:
        raise StoreError(f"{path}: neither a file nor a folder")


def _walk(folder: str, prefix: str, above: tuple[tuple[int, int], ...], listing: Listing) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                stat = entry.stat()
            except OSError as error:
                if error.errno in (ENOENT, ELOOP):  # a link to nothing, or in a circle
                    continue
                raise
            if S_ISREG(stat.st_mode):
                listing[prefix + entry.name] = (entry.path, _state(stat))
            elif S_ISDIR(stat.st_mode) and entry.name != "__pycache__":
                inode = (stat.st_dev, stat.st_ino)
                if inode not in above:
                    _walk(entry.path, f"{prefix}{entry.name}/", (*above, inode), listing)


def _state(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _settled(state: list[int]) -> bool:
    return max(state[1:]) < time.time_ns() - SETTLED_NS


def _hash(path: str, state: list[int]) -> str:
    try:
        digest = files.sha256(Path(path))
    except OSError as error:  # an error from read, unlike one from open, does not name the file
        raise StoreError(f"{path}: {str(error.strerror).lower()}") from None
    if _state(os.stat(path)) != state:
        raise StoreError(f"{path}: changed while it was read")
    return digest


def _digest(listing: Mapping[str, str]) -> str:
    if set(listing) == {""}:
        return listing[""]
    lines = sorted(os.fsencode(name) + b"\0" + digest.encode() + b"\n" for name, digest in listing.items())
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _load(cache: Path) -> dict[str, Entry]:
    try:
        return {path: entry for path, entry in dict(json.loads(cache.read_bytes())).items() if _is_entry(entry)}
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _dump(entries: Mapping[str, Entry]) -> bytes:
    return json.dumps(entries, separators=(",", ":")).encode()


def _remember(cache: Path, fresh: Mapping[str, Entry]) -> None:
    with locks.hold(cache.with_suffix(".lock")):
        files.write_file(cache, _dump({**_load(cache), **fresh}))
