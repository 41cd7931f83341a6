"""A run with all artifacts that it was built from, as one file: a reproducibility pack.

A tar compressed with zstd (artifacts/packs/archive.py) that contains, in this order:
    pack.json              the index: {format, recipe, created, without, members: [[name, size, SHA-256], ...]}
    runs/NAME.json         the run: the artifact of each node, and the complete recipe
    keys/KEY.json          the lineage and metrics of each artifact
    objects/DIGEST/...     the artifacts, with their manifests, as in a store
"""

import hashlib
import os
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from artifacts import files, locks, objects, records, runs
from artifacts.errors import StoreError
from artifacts.keys import canonical
from artifacts.lineage import BuiltArtifact, ancestry
from artifacts.outside import check_outside
from artifacts.packs import archive
from artifacts.packs.archive import Member
from artifacts.records import Record
from artifacts.runs import RunRecord
from artifacts.store import Store

FORMAT = 1
INDEX = "pack.json"
ENDING = ".tar.zst"
LONGEST_INDEX = 1 << 23
"""Bytes: 150 for each of 50,000 files. A run has some thousands. Reading an index of this size takes 40 MB."""
LONGEST_LINEAGE = 1 << 26
"""Bytes of the run's record and all key records together. A key record has some 20,000."""

Report = Callable[[int, int], None]
"""Called with bytes done and bytes in total."""


@dataclass(frozen=True)
class PackedRun:
    """What `pack` wrote."""

    path: Path
    recipe: str
    created: str
    """Time of the run; ISO 8601, UTC."""
    artifacts: int
    left_out: list[str]
    """Nodes whose files are not in the pack."""
    bytes: int
    """Size of the content."""
    packed: int
    """Bytes of the compressed file."""


@dataclass(frozen=True)
class Contents:
    """The files of a pack, in order, each with its source: the index, the records, and the objects."""

    files: list[tuple[Member, Path | bytes]]
    artifacts: int
    left_out: list[str]
    """Nodes whose files are not among them."""

    @property
    def bytes(self) -> int:
        return sum(member.size for member, _ in self.files)


def pack(
    store: Store,
    run: RunRecord,
    path: Path,
    without: Collection[str] = (),
    overwrite: bool = False,
    report: Report = lambda done, total: None,
) -> PackedRun:
    """Writes the run with all artifacts that it was built from into `path`; equal runs give equal bytes.

    `without`: nodes or stages whose lineage is included without their files. Every file is hashed while it is written.
    Raises `StoreError` if an artifact is damaged, the name does not end in ENDING, `path` exists (unless `overwrite`)
    or the disk is full; then `path` is as it was before.
    """
    files.check_path(path)
    if path.is_dir():
        raise StoreError(f"{path}: is a folder")
    if not path.name.endswith(ENDING):
        raise StoreError(f"{path}: a pack is a tar by zstd: its name must end in {ENDING}")
    if path.exists() and not overwrite:
        raise StoreError(f"{path}: exists already; --overwrite replaces it")
    if not path.absolute().parent.is_dir():
        raise StoreError(f"{path.absolute().parent}: no such folder")
    check_outside(path)
    with contents(store, run, without) as packed:
        check_lengths(path, packed)
        done = 0

        def moved(count: int) -> None:
            nonlocal done
            done += count
            report(done, packed.bytes)

        with _whole(path) as unfinished:
            archive.write_archive(unfinished, packed.files, moved)
    return PackedRun(path, run.name, run.created, packed.artifacts, packed.left_out, packed.bytes, path.stat().st_size)


@contextmanager
def contents(store: Store, run: RunRecord, without: Collection[str]) -> Iterator[Contents]:
    """Yields what a pack of the run contains. Meanwhile `gc` keeps its artifacts.

    Raises `StoreError` if an artifact is missing or of the wrong size, and for an unknown name in `without`.
    """
    lineage_records = lineage(store, run)
    with _kept(store, lineage_records):
        left_out = _left_out(store, run, lineage_records, without)
        members = list(_members(store, run, lineage_records, {record.key for record in left_out}))
        index = {
            "format": FORMAT,
            "recipe": run.name,
            "created": run.created,
            "without": sorted(record.key for record in left_out),
            "members": [member for member, _ in members],
        }
        nodes = sorted(record.node for record in left_out)
        yield Contents([_of_bytes(INDEX, canonical(index)), *members], len(lineage_records) - len(left_out), nodes)


def lineage(store: Store, run: RunRecord) -> list[Record]:
    """Returns the records of the run's artifacts and of all their ancestors that the store has, sorted by key.

    Raises `StoreError` if a record of the run is missing or now names other bytes.
    """
    found: dict[str, Record] = {}
    for node, ref in run.nodes.items():
        record = store.record(ref.key)
        if record is None:
            raise StoreError(f"{store.root}: the run of {run.name} has lost the record of {node}")
        # If bytes vary from build to build, the current artifact is as good.
        if record.digest != ref.digest and record.identity != ref.identity:
            raise StoreError(f"{store.root}: {node} was built again since this run of {run.name}; pack a newer run")
        found[record.key] = record
    ends = [BuiltArtifact(record.node, record.identity, record) for record in found.values()]
    found |= {ancestor.record.key: ancestor.record for ancestor in ancestry(store, ends) if ancestor.record}
    return [found[key] for key in sorted(found)]


def _left_out(store: Store, run: RunRecord, records: list[Record], without: Collection[str]) -> list[Record]:
    """Returns the records named in `without`. Raises `StoreError` for an unknown name or a damaged other artifact."""
    nodes_of = {key: {node for node, ref in run.nodes.items() if ref.key == key} for key in (r.key for r in records)}
    known = {name for record in records for name in (record.stage, *nodes_of[record.key])}
    for name in without:
        if name not in known:
            raise StoreError(f"--without {name}: the run of {run.name} has {', '.join(sorted(known))}")
    left_out = [record for record in records if {record.stage, *nodes_of[record.key]} & {*without}]
    for record in records:
        problem = None if record in left_out else store.problem(record)
        if problem is not None:
            raise StoreError(f"{store.root}: {record.node}: {problem}; `cocondenser run {run.name}` builds it again")
    return left_out


def _members(
    store: Store, run: RunRecord, lineage_records: list[Record], without: set[str]
) -> Iterator[tuple[Member, Path | bytes]]:
    """Yields all members but the index, each with its source."""
    by_key = {record.key: record for record in lineage_records}
    nodes = {node: store.ref(by_key[ref.key]) for node, ref in run.nodes.items()}
    created = datetime.fromisoformat(run.created)
    yield _of_bytes(
        f"runs/{runs.run_name(run.name, created)}.json", runs.dump_run(run.name, nodes, run.details, created)
    )
    for record in lineage_records:
        yield _of_bytes(f"keys/{record.key}.json", records.dump_record(record))
    for digest in sorted({record.digest for record in lineage_records if record.key not in without}):
        folder, base = store.objects / digest, f"objects/{digest}"
        manifest = (folder / objects.MANIFEST).read_bytes()
        yield _of_bytes(f"{base}/{objects.MANIFEST}", manifest)
        for entry in sorted(objects.parse_manifest(manifest)):
            yield Member(f"{base}/{entry.name}", entry.size, entry.sha256), folder / entry.name


def check_lengths(path: Path | str, packed: Contents) -> None:
    """Raises `StoreError` if the pack is too large to unpack."""
    index, *members = (member for member, _ in packed.files)
    lineage = sum(member.size for member in members if not member.name.startswith("objects/"))
    if index.size > LONGEST_INDEX or lineage > LONGEST_LINEAGE:
        raise StoreError(f"{path}: {len(members):,} files with {lineage:,} bytes of records are too many for a pack")


def _of_bytes(name: str, data: bytes) -> tuple[Member, bytes]:
    return Member(name, len(data), hashlib.sha256(data).hexdigest()), data


@contextmanager
def _kept(store: Store, lineage_records: list[Record]) -> Iterator[None]:
    """Keeps `gc` from the artifacts that are read meanwhile, as a build does for its inputs."""
    path = store.lock_file(f"export-{socket.gethostname()}-{os.getpid()}")
    reads = locks.holder("export", "export", {record.key: record.identity for record in lineage_records})
    with ExitStack() as held:
        with suppress(OSError):  # in a read-only store this user removes nothing
            held.enter_context(locks.hold(path, reads))
            held.callback(path.unlink, missing_ok=True)
        yield


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yields a temporary name for the file; renames it to `path` once it is whole and on disk."""
    unfinished = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    try:
        with files.storage_errors(path.absolute().parent):
            yield unfinished
            files.sync(unfinished)
            unfinished.replace(path)
            files.sync(path.absolute().parent)
    finally:
        unfinished.unlink(missing_ok=True)
