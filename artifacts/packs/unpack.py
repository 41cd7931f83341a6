"""Imports a run from a pack (packs/pack.py) into a store: all of it, after every byte was checked, or nothing."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from artifacts import files, locks, runs
from artifacts.errors import StoreError
from artifacts.live import protect_from_gc
from artifacts.locks import Holder
from artifacts.packs import archive
from artifacts.packs.archive import Reader
from artifacts.packs.pack import Report
from artifacts.packs.staging import PackIndex, read_index, read_lineage, read_objects
from artifacts.records import Record
from artifacts.runs import RunRecord
from artifacts.store import Store


@dataclass(frozen=True)
class Unpacked:
    """What `unpack` did."""

    recipe: str
    created: str
    """Time of the run; ISO 8601, UTC."""
    artifacts: int
    new: int
    """Artifacts that were missing or damaged in the store."""
    kept: list[str]
    """Nodes whose artifact in the store is kept: it has equal inputs, and bytes vary from build to build."""
    left_out: list[str]
    """Nodes whose files are not in the pack."""
    damaged: list[str]
    """A line for each damaged artifact of the store that the pack replaces."""
    bytes: int
    run: Path
    """File of the run's record."""


def unpack(
    store: Store,
    path: Path,
    replace: bool = False,
    report: Report = lambda done, total: None,
    on_wait: Callable[[Holder], None] | None = None,
) -> Unpacked:
    """Adds the pack's artifacts, their records and last the run's record to the store.

    All files are first written into a folder of STORE/work and checked there; a damaged or misnamed file raises a
    `StoreError` that names the pack. Then each artifact is stored as a build stores its own: a kill leaves whole
    artifacts, and the same call continues later. An artifact that the store already has is kept. If the store has
    another artifact for the same key, `replace` replaces it; else it stops before anything is stored.
    """
    with archive.open_archive(path) as reader:
        index, name = read_index(reader)
        check_room(store, sum(size for _, size, _ in index.members))
        with staging_folder(store, name, index.recipe, on_wait) as (staged, keep_folders):
            run, records = stage(store, reader, index, staged, replace, report)
            store.prepare()
            keep_folders()
            damaged = clear_damaged(store, [record for record in records if record.key not in index.without])
            return file(store, run, records, index, staged, replace, on_wait, damaged)


@contextmanager
def staging_folder(
    store: Store, name: str, recipe: str, on_wait: Callable[[Holder], None] | None
) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yields an empty folder of STORE/work, held by this process and removed at the end, and a function that keeps the
    folders of the store if they were created for it.
    """
    lock, who = store.lock_file(name), locks.holder("unpack", recipe, {})
    with (
        files.provisional(store.work, store.locks) as created_folders,
        files.storage_errors(store.root),
        locks.hold(lock, who, on_wait),
    ):
        try:
            yield files.empty_folder(store.work / name), created_folders.pop_all
        finally:
            shutil.rmtree(store.work / name, ignore_errors=True)
            lock.unlink(missing_ok=True)


def check_room(store: Store, needed: int) -> None:
    """Raises `StoreError` if the disk has less space than `needed` bytes."""
    folder = next(folder for folder in (store.root, *store.root.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(f"{store.root}: the run needs {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free")


def stage(
    store: Store, reader: Reader, index: PackIndex, staged: Path, replace: bool, report: Report
) -> tuple[RunRecord, list[Record]]:
    """Writes the pack's files below `staged`, checks all of them, and returns the run and the records."""
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
    """Returns the record to use for the key of the pack's `record`; None: the store's own, of other bytes.

    Raises `StoreError` if the store has another artifact for the key and `replace` is false.
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
        f"{record.digest[:12]}; --replace takes {record.digest[:12]}"
    )


def clear_damaged(store: Store, records: Iterable[Record]) -> list[str]:
    """Sets damaged artifacts of the store aside; call it before anything is stored, which would be set aside together
    with a damaged input. Returns a line for each.
    """
    lines = (store.clear(record.stage, record.digest) for record in records if (store.objects / record.digest).exists())
    return [line for line in lines if line is not None]


def file(
    store: Store,
    run: RunRecord,
    records: Iterable[Record],
    index: PackIndex,
    staged: Path,
    replace: bool,
    on_wait: Callable[[Holder], None] | None,
    damaged: list[str],
    fetch: Callable[[Record], None] = lambda record: None,
) -> Unpacked:
    """Stores the staged artifacts, and last the run.

    `fetch` is called for each artifact that the store does not have, before it is taken from `staged`. `gc` keeps what
    is stored or reused until the run names it.
    """
    nodes = {ref.key: node for node, ref in run.nodes.items()}
    refs = {record.key: store.ref(record) for record in records}
    artifacts, new, kept = 0, 0, []
    with protect_from_gc(store, run.name):
        for record in records:
            if record.key in index.without:
                continue
            artifacts += 1
            holder = locks.holder(record.stage, record.node, record.inputs)
            with locks.hold(store.lock_file(record.key), holder, on_wait):
                present = store.record(record.key)
                new += present is None or store.problem(present) is not None
                chosen = settled(store, record, replace)
                if chosen is None and present is not None:
                    store.use(present)
                    kept.append(nodes.get(record.key, record.node))
                    refs[record.key] = store.ref(present)
                elif chosen is not None:
                    if not (store.objects / record.digest).exists():
                        fetch(record)
                    refs[record.key] = store.file(staged / "objects" / record.digest, chosen)
        of_nodes = {node: refs[ref.key] for node, ref in run.nodes.items()}
        path = runs.record_run(store, run.name, of_nodes, run.details, datetime.fromisoformat(run.created))
    left_out = sorted(node for node, ref in run.nodes.items() if ref.key in index.without)
    total = sum(size for _, size, _ in index.members)
    return Unpacked(run.name, run.created, artifacts, new, sorted(kept), left_out, damaged, total, path)
