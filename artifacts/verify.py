"""Hashes the store's content again."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from artifacts import dates, files, records, runs, sources
from artifacts.store import Store


def verify(store: Store, which: str | None = None) -> list[str]:
    """Returns a line for each problem of one artifact (see `Store.show`) or of all; moves broken ones to broken/.

    An object's key records, and what may have been built from its damaged bytes (`Store.condemn`), are moved with it,
    so that a second call finds nothing. In a read-only store the lines say so, and nothing is moved. Raises
    `StoreError` if there is no such artifact.
    """
    if which is not None:
        record = store.show(which)
        return [*_key(store, store.keys / f"{record.key}.json"), *_object(store, store.objects / record.digest)]
    keys = [line for path in files.list_paths(store.keys, ".json") for line in _key(store, path)]
    of_objects = [line for path in files.list_paths(store.objects, "") for line in _object(store, path)]
    of_runs = [line for path in files.list_paths(store.runs, ".json") for line in _run(store, path)]
    return [*keys, *of_objects, *of_runs, *(f"{store.sources.name}: {line}" for line in sources.verify(store.sources))]


def _object(store: Store, folder: Path) -> list[str]:
    problem = store.inspect(folder.name, deep=True)
    if problem is None or problem == "is missing":  # reported by the line of its key
        return []
    also: list[str] = []
    aside = _aside(lambda: also.extend(_condemn(store, folder)))
    return [f"objects/{folder.name[:12]}: {problem}{aside}", *also]


def _condemn(store: Store, folder: Path) -> list[str]:
    """Calls `Store.condemn` and sets aside the object's key records, so that a run builds it again at once."""
    lines = store.condemn(folder.name, folder.lstat().st_ino)
    for record in store.records():
        if record.digest == folder.name and not os.path.lexists(folder):  # else another process has built it again
            _set_aside(store, store.keys / f"{record.key}.json")
    return lines


def _key(store: Store, path: Path) -> list[str]:
    record = None if path.is_dir() else store.record(path.stem)
    if record is None:
        return _unreadable(store, path)
    if record.key != path.stem or not records.agrees(record):
        return [f"keys/{path.name}: was changed{_set_aside(store, path)}"]
    if not (store.objects / record.digest).exists():
        return [f"keys/{path.name}: its artifact is missing{_set_aside(store, path)}"]
    return [f"keys/{path.name}: {line}" for line in _dated(record.created)]


def _run(store: Store, path: Path) -> list[str]:
    run = runs.read_run(store, path)
    if run is None:
        return _unreadable(store, path)
    if path.stem != runs.run_name(run.name, dates.moment(run.created)):
        return [f"runs/{path.name}: was changed{_set_aside(store, path)}"]
    return [f"runs/{path.name}: {line}" for line in _dated(run.created)]


def _dated(created: str) -> list[str]:
    if not dates.is_future(created):
        return []
    advice = "counts as older than all others; remove it when you no longer need it"
    return [f"dated in the future ({created[:19]}), {advice}"]


def _unreadable(store: Store, path: Path) -> list[str]:
    if not path.exists():  # removed since it was listed
        return []
    try:
        why = "was changed" if isinstance(json.loads(path.read_bytes()), dict) else "cannot be read"
    except (OSError, ValueError, RecursionError):
        why = "cannot be read"
    return [f"{path.parent.name}/{path.name}: {why}{_set_aside(store, path)}"]


def _set_aside(store: Store, path: Path) -> str:
    return _aside(lambda: store.set_aside(path, path.lstat().st_ino))


def _aside(move: Callable[[], None]) -> str:
    """Moves a broken file or folder. Returns an addition to its line if that fails."""
    try:
        move()
    except OSError as error:
        return f"; it cannot be set aside: {str(error.strerror).lower()}"
    return ""
