"""Hashes again what the store holds."""

from pathlib import Path

from artifacts import files
from artifacts.keys import make_key
from artifacts.records import Record
from artifacts.store import Store


def verify(store: Store, which: str | None = None) -> list[str]:
    """A line for each problem of one artifact (see `Store.show`) or of all; what is broken is moved to broken/.

    Raises `StoreError` if there is no such artifact.
    """
    if which is not None:
        record = store.show(which)
        return _records(store, [record]) + _objects(store, [store.objects / record.digest])
    return _unreadable(store) + _records(store, store.records()) + _objects(store, sorted(store.objects.glob("*")))


def _objects(store: Store, folders: list[Path]) -> list[str]:
    found = [(folder.name, store.inspect(folder.name, deep=True)) for folder in folders if folder.is_dir()]
    return [f"objects/{digest[:12]}: {problem}" for digest, problem in found if problem is not None]


def _records(store: Store, records: list[Record]) -> list[str]:
    lines = []
    for record in records:
        components = (record.stage, record.code, record.config, record.sources, record.inputs, record.libraries)
        if make_key(*components).hex != record.key:
            lines.append(f"keys/{record.key}.json: was changed")
            path = store.keys / f"{record.key}.json"
            store.set_aside(path, path.stat().st_ino)
        elif not (store.objects / record.digest).exists():
            lines.append(f"keys/{record.key}.json: its artifact is not there")
    return lines


def _unreadable(store: Store) -> list[str]:
    paths = [path for path in files.listed(store.keys, ".json") if path.is_dir() or store.record(path.stem) is None]
    for path in paths:
        store.set_aside(path, path.stat().st_ino)
    return [f"keys/{path.name}: cannot be read" for path in paths]
