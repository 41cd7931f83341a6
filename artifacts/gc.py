"""Frees disk space."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from artifacts import dates, files, live, locks, objects, sources
from artifacts.runs import RunRecord, series_of
from artifacts.runs import runs as all_runs
from artifacts.store import Store

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Removed:
    path: Path
    """Relative to the store."""
    bytes: int
    why: str


def gc(store: Store, runs: int, days: float, dry_run: bool = False) -> list[Removed]:
    """Removes artifacts that are not in the newest `runs` run records and were not built or used within `days`.

    The run that trained the model of one of these runs is kept with it.

    It also removes equally old work of killed builds (checkpoints), objects without a key, locks of killed runs and
    broken/. It keeps artifacts that are being built, their inputs, and what a current run has built or used.
    `dry_run` changes nothing and works in a read-only store. Returns what was (or would be) removed.
    """
    if not store.root.exists():
        return []
    if not dry_run:
        store.prepare()
    free = _is_free if dry_run else locks.try_hold
    began = live.began(store)
    oldest = min(time.time() - days * DAY_SECONDS, began)
    removed = []
    # Builds store their artifacts under this lock, so no object is removed before its key is written.
    with files.storage_errors(store.root), nullcontext() if dry_run else store.commit_lock():
        # One by one: a yielded target stays under its key's lock until the next one is requested.
        targets = chain(
            _artifacts(store, runs, oldest, began, free), _work(store, oldest, free), _left_over(store, oldest, free)
        )
        for target in targets:
            if not dry_run:
                _remove(store, store.root / target.path)
            removed.append(target)
    if not dry_run:
        sources.prune(store.sources)
    return removed


Free = Callable[[Path], AbstractContextManager[bool]]
"""Yields whether a lock is free; holds it during the block, except in a dry run."""


def _is_free(lock: Path) -> AbstractContextManager[bool]:
    return nullcontext(not locks.is_held(lock))


def _artifacts(store: Store, count: int, oldest: float, began: float, free: Free) -> Iterator[Removed]:
    named = {ref.key for run in _kept_runs(store, count) for ref in run.nodes.values()}
    read = _being_read(store, free)
    kept: set[str] = set()
    for record in store.records():
        path = store.keys / f"{record.key}.json"
        with free(store.lock_file(record.key)) as unlocked:
            used = path.stat().st_mtime
            # `began` comes from the same clock, the file system's: the two can be compared even if it is wrong.
            unused = used <= began and dates.last_use(used) <= oldest
            if unlocked and record.key not in named and record.identity not in read and unused:
                yield Removed(path.relative_to(store.root), 0, f"{record.stage}: not used lately")
            else:
                kept.add(record.digest)
    for folder in files.list_paths(store.objects, ""):
        if folder.name not in kept:
            yield Removed(folder.relative_to(store.root), objects.size(folder), "no key is left")


def _kept_runs(store: Store, count: int) -> list[RunRecord]:
    """The newest runs, and those with which their series of updates begin: later updates are compared with these."""
    found = all_runs(store)
    series = {series_of(run) for run in found[:count]}
    return [run for n, run in enumerate(found) if n < count or run.created in series]


def _being_read(store: Store, free: Free) -> set[str]:
    """Returns identities of the artifacts that current builds read."""
    read: set[str] = set()
    for path in store.locks.glob("*.lock"):
        with free(path) as unlocked:
            holder = None if unlocked else locks.read_holder(path)
            read |= set(holder.inputs.values()) if holder else set()
    return read


def _work(store: Store, oldest: float, free: Free) -> Iterator[Removed]:
    for folder in files.list_paths(store.work, ""):
        with free(store.lock_file(folder.name)) as unlocked:
            if unlocked and _newest(folder) <= oldest:
                yield Removed(folder.relative_to(store.root), objects.size(folder), "left by a build that did not end")


def _newest(folder: Path) -> float:
    return max(path.lstat().st_mtime for path in [folder, *folder.rglob("*")])


def _left_over(store: Store, oldest: float, free: Free) -> Iterator[Removed]:
    for path in files.list_paths(store.broken, ""):
        yield Removed(path.relative_to(store.root), objects.size(path), "broken")
    for folder in (store.root, store.keys, store.runs, store.verified):
        for path in folder.glob(".*"):
            if path.is_file() and path.stat().st_mtime <= oldest:
                yield Removed(path.relative_to(store.root), path.stat().st_size, "half-written")
    for path in sorted(store.locks.glob(f"{live.PREFIX}*.lock")):
        if not path.exists():  # its run has ended meanwhile
            continue
        with free(path) as unlocked, suppress(FileNotFoundError):  # or ends now
            if unlocked:
                yield Removed(path.relative_to(store.root), objects.size(path), "left by a run that did not end")


def _remove(store: Store, path: Path) -> None:
    if path.parent == store.objects:
        (store.verified / path.name).unlink(missing_ok=True)
        # Renamed first: a reader sees a whole object or none.
        path = path.rename(store.broken / f"{path.name}-{time.time_ns()}")
    if path.parent == store.keys:
        store.lock_file(path.stem).unlink(missing_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
