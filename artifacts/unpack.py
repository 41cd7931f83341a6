"""A run from a pack (artifacts/pack.py) into a store: all of it, once every byte of it was checked, or nothing."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from artifacts import archive, files, locks, runs
from artifacts.archive import Reader
from artifacts.errors import StoreError
from artifacts.locks import Holder
from artifacts.pack import Report
from artifacts.records import Record
from artifacts.runs import Run
from artifacts.staging import Index, read_index, read_lineage, read_objects
from artifacts.store import Store


@dataclass(frozen=True)
class Unpacked:
    """What `unpack` did."""

    recipe: str
    created: str
    """Of the run; ISO 8601, UTC."""
    artifacts: int
    new: int
    """Artifacts that the store did not have whole."""
    kept: list[str]
    """Nodes of which the store keeps its own artifact for the pack's: of equal inputs, where bytes cannot be equal."""
    left_out: list[str]
    """Nodes whose files the pack does not hold."""
    damaged: list[str]
    """A line for each artifact of the store that the pack's replaces because it was damaged."""
    bytes: int
    run: Path
    """The run's record."""


def unpack(
    store: Store,
    path: Path,
    replace: bool = False,
    report: Report = lambda done, total: None,
    on_wait: Callable[[Holder], None] | None = None,
) -> Unpacked:
    """Brings the pack's artifacts, their records and last the run's record into the store.

    All is written into a folder of STORE/work first; what is damaged, or not what its names say, is refused there, by
    a `StoreError` that names the pack. Then artifact by artifact is filed as a build files its own: a kill in between
    leaves whole artifacts, and the same import goes on. An artifact that the store holds already is kept. Where it
    holds another one for the same key, the import is refused before anything is filed, or (`replace`) the pack's
    takes its place.
    """
    with archive.opened(path) as reader:
        index, name = read_index(reader)
        check_room(store, index)
        lock, who = store.lock_file(name), locks.holder("import", index.recipe, {})
        with (
            files.provisional(store.work, store.locks) as made,
            files.storage_errors(store.root),
            locks.hold(lock, who, on_wait),
        ):
            staged = files.empty(store.work / name)
            try:
                run, records = stage(store, reader, index, staged, replace, report)
                store.prepare()
                made.pop_all()
                return file(store, run, records, index, staged, replace, on_wait)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
                lock.unlink(missing_ok=True)


def check_room(store: Store, index: Index) -> None:
    """Raises `StoreError` where the disk has no room for what the pack says that it holds."""
    folder = next(folder for folder in (store.root, *store.root.parents) if folder.exists())
    needed, free = sum(size for _, size, _ in index.members), shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(f"{store.root}: the pack holds {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free")


def stage(
    store: Store, reader: Reader, index: Index, staged: Path, replace: bool, report: Report
) -> tuple[Run, list[Record]]:
    """Writes the pack's files below `staged`, checks all of them, and gives the run and the records."""
    total, done = sum(size for _, size, _ in index.members), 0

    def moved(count: int) -> None:
        nonlocal done
        done += count
        report(done, total)

    run, records = read_lineage(store, reader, index, staged, moved)
    for record in records:
        settled(store, record, replace)  # before hours of unpacking
    read_objects(reader, index, staged, records, moved)
    return run, records


def settled(store: Store, record: Record, replace: bool) -> Record | None:
    """The record that is to stand for the key of the pack's `record`; None: the store's own, of other bytes.

    Raises `StoreError` where the store holds another artifact for the key and `replace` is not given.
    """
    present = store.record(record.key)
    if present is None or store.problem(present) is not None:
        return record
    if present.digest == record.digest:
        return present  # with its own host and seconds
    if present.identity == record.identity:
        return None
    if replace:
        return record
    raise StoreError(
        f"{store.root}: holds another artifact of {record.node} for the same key, {present.digest[:12]} and not "
        f"{record.digest[:12]}; --replace takes the pack's in its place"
    )


def file(
    store: Store,
    run: Run,
    records: Iterable[Record],
    index: Index,
    staged: Path,
    replace: bool,
    on_wait: Callable[[Holder], None] | None,
) -> Unpacked:
    """Files what was staged, and last the run."""
    nodes = {ref.key: node for node, ref in run.nodes.items()}
    refs = {record.key: store.ref(record) for record in records}
    there, new, kept = 0, 0, []
    damaged = [  # before anything is filed, which would be set aside with the input that it was built from
        line
        for record in records
        if record.key not in index.without
        and (store.objects / record.digest).exists()
        and (line := store.clear(record.stage, record.digest)) is not None
    ]
    for record in records:
        if record.key in index.without:
            continue
        there += 1
        with locks.hold(store.lock_file(record.key), locks.holder(record.stage, record.node, record.inputs), on_wait):
            before = store.record(record.key)
            new += before is None or store.problem(before) is not None
            ours = settled(store, record, replace)
            if ours is None and before is not None:
                kept.append(nodes.get(record.key, record.node))
                refs[record.key] = store.ref(before)
            elif ours is not None:
                refs[record.key] = store.file(staged / "objects" / record.digest, ours)
    of_nodes = {node: refs[ref.key] for node, ref in run.nodes.items()}
    path = runs.record_run(store, run.name, of_nodes, run.details, datetime.fromisoformat(run.created))
    left_out = sorted(node for node, ref in run.nodes.items() if ref.key in index.without)
    total = sum(size for _, size, _ in index.members)
    return Unpacked(run.name, run.created, there, new, sorted(kept), left_out, damaged, total, path)
