"""Copies artifacts to and from any address that fsspec opens (s3://, gs://, file:// ...), in the store's own layout."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from artifacts import files, locks, objects, records
from artifacts.errors import StoreError
from artifacts.records import Ref
from artifacts.store import Store


def push(store: Store, key: str, url: str) -> None:
    """Copies the artifact of `key` (hex) and its record below `url`. Raises `StoreError` if it is not whole here."""
    record = store.record(key)
    problem = f"no artifact {key[:12]}" if record is None else store.problem(record)
    if record is None or problem is not None:
        raise StoreError(f"{store.root}: {problem}")
    with _remote(url) as (system, base):
        folder, there = store.objects / record.digest, f"{base}/objects/{record.digest}"
        if not system.exists(f"{there}/{objects.MANIFEST}"):
            # The manifest last: it says that the rest is there.
            for entry in objects.parse((folder / objects.MANIFEST).read_bytes()):
                _put(system, folder / entry.name, f"{there}/{entry.name}")
            _put(system, folder / objects.MANIFEST, f"{there}/{objects.MANIFEST}")
        _put(system, store.keys / f"{key}.json", f"{base}/keys/{key}.json")


def pull(store: Store, key: str, url: str) -> Ref | None:
    """Fetches the artifact of `key` (hex) from `url`, hashes it and files it; None if it is not there.

    Raises `StoreError` if what is there is not what its names say.
    """
    store.prepare()
    work = store.work / key
    with _remote(url) as (system, base), locks.hold(store.lock_file(key)), files.storage_errors(store.root):
        if not system.exists(f"{base}/keys/{key}.json"):
            return None
        out = files.empty(work / "out")
        try:
            system.get_file(f"{base}/keys/{key}.json", str(work / "record.json"))
            record = records.read(work / "record.json")
            if record is None or record.key != key:
                raise StoreError(f"{url}: keys/{key}.json is no record of this key")
            if store.problem(record) is not None:
                _fetch(system, f"{base}/objects/{record.digest}", out)
                problem = objects.problem(out, record.digest, deep=True)
                if problem is not None:
                    raise StoreError(f"{url}: objects/{record.digest[:12]}: {problem}")
            return store.file(out, record)
        finally:
            shutil.rmtree(out, ignore_errors=True)
            (work / "record.json").unlink(missing_ok=True)
            if not any(work.iterdir()):
                work.rmdir()


def _fetch(system: Any, there: str, out: Path) -> None:
    system.get_file(f"{there}/{objects.MANIFEST}", str(out / objects.MANIFEST))
    try:
        entries = objects.parse((out / objects.MANIFEST).read_bytes())
    except ValueError as error:
        raise StoreError(f"{there}/{objects.MANIFEST}: {error}") from None
    for entry in entries:
        (out / entry.name).parent.mkdir(parents=True, exist_ok=True)
        system.get_file(f"{there}/{entry.name}", str(out / entry.name))


def _put(system: Any, path: Path, there: str) -> None:
    system.makedirs(there.rpartition("/")[0], exist_ok=True)
    system.put_file(str(path), there)


@contextmanager
def _remote(url: str) -> Iterator[tuple[Any, str]]:
    """File system and path of `url`; what fails there becomes a `StoreError` that names it."""
    from fsspec.core import url_to_fs

    try:
        system, base = url_to_fs(url)
        yield system, base.rstrip("/")
    except (OSError, ImportError, ValueError) as error:
        raise StoreError(f"{url}: {error}") from error
