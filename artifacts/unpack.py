"""A run from a pack (artifacts/pack.py) into a store: all of it, once every byte of it was checked, or nothing."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from artifacts import archive, files, locks, objects, runs
from artifacts.archive import Member, Reader
from artifacts.errors import StoreError
from artifacts.keys import make_key
from artifacts.locks import Holder
from artifacts.pack import FORMAT, INDEX, Report
from artifacts.records import HEX, Record
from artifacts.runs import Run
from artifacts.store import Store

LONGEST_INDEX = 1 << 27
"""Bytes: 150 for each of most of a million files."""
FOLDERS = ("runs", "keys", "objects")
"""In the order in which a pack holds them."""


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
    bytes: int
    run: Path
    """The run's record."""


class Index(BaseModel):
    """pack.json."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: int
    recipe: str
    created: str
    without: list[str]
    """Keys whose objects are left out."""
    members: list[tuple[str, int, str]]


class Format(BaseModel):
    """What any version's pack.json has."""

    model_config = ConfigDict(strict=True)

    format: int


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


def read_index(reader: Reader) -> tuple[Index, str]:
    """The pack's index, and a name for the import of this very pack."""
    name, size = reader.header() or ("nothing", 0)
    if name != INDEX or size > LONGEST_INDEX:
        raise reader.wrong(f"no pack of a run: it begins with {name} of {size:,} bytes")
    data = b"".join(reader.content(size))
    try:
        found = Format.model_validate_json(data).format
        if found != FORMAT:
            raise reader.wrong(f"a pack of format {found}; this version reads {FORMAT}")
        index = Index.model_validate_json(data)
    except ValidationError as error:
        raise reader.wrong(f"{INDEX}: {error.errors()[0]['msg'].lower()}") from None
    for member in index.members:
        if not _has_place(Member(*member)):
            raise reader.wrong(f"{INDEX} names {member[0]}, which has no place in a store")
    names = [member[0] for member in index.members]
    folders = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    if sum(name.startswith("runs/") for name in names) != 1:
        raise reader.wrong(f"{INDEX} does not name one run")
    if len({*names}) < len(names) or folders & {*names}:
        raise reader.wrong(f"{INDEX} names a file twice")
    if names != sorted(names, key=_folder):
        raise reader.wrong(f"{INDEX} names files out of their order")
    return index, f"import-{hashlib.sha256(data).hexdigest()}"


def _folder(name: str) -> int:
    return FOLDERS.index(name.partition("/")[0])


def _has_place(member: Member) -> bool:
    """Whether it may be a file of a pack: of a name that leads nowhere else."""
    parts = member.name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or member.size < 0:
        return False
    match parts:
        case ["runs", name]:
            return name.endswith(".json")
        case ["keys", name]:
            return bool(HEX.fullmatch(name.removesuffix(".json"))) and name.endswith(".json")
        case ["objects", digest, _, *_]:
            return bool(HEX.fullmatch(digest))
    return False


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
    members = [Member(*member) for member in index.members]
    total, done = sum(member.size for member in members), 0

    def moved(count: int) -> None:
        nonlocal done
        done += count
        report(done, total)

    lineage = [member for member in members if not member.name.startswith("objects/")]
    for member in lineage:
        _write(reader, member, staged, moved)
    records = [_record(reader, staged, member) for member in lineage if member.name.startswith("keys/")]
    run = _run(store, reader, staged, lineage[0], records)
    for record in records:
        settled(store, record, replace)  # before hours of unpacking
    for member in members[len(lineage) :]:
        _write(reader, member, staged, moved)
    if reader.header() is not None:
        raise reader.wrong("holds more than its index says")
    _check_objects(reader, index, staged, records)
    return run, records


def _write(reader: Reader, member: Member, staged: Path, moved: Callable[[int], None]) -> None:
    """Writes the archive's next file, which must be `member`, and puts it on disk."""
    name, size = reader.header() or ("nothing", 0)
    if (name, size) != (member.name, member.size):
        raise reader.wrong(f"holds {name} of {size:,} bytes where its index has {member.name} of {member.size:,}")
    path, sha = staged / member.name, hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        for piece in reader.content(size):
            out.write(piece)
            sha.update(piece)
            moved(len(piece))
        out.flush()
        os.fsync(out.fileno())
    if sha.hexdigest() != member.sha256:
        raise reader.wrong(f"{member.name} was changed")


def _record(reader: Reader, staged: Path, member: Member) -> Record:
    """The record in a key's file, if it is one of that key and has everything that readers take for granted."""
    try:
        record: Record = TypeAdapter(Record).validate_json((staged / member.name).read_bytes(), strict=True)
        components: Any = (getattr(record, name) for name in KEY)
        key = make_key(*components).hex
        timed = datetime.fromisoformat(record.created).tzinfo is not None
    except (ValueError, RecursionError) as error:
        raise reader.wrong(f"{member.name} is no record: {str(error).splitlines()[0]}") from None
    if member.name != f"keys/{record.key}.json" or key != record.key:
        raise reader.wrong(f"{member.name} is not of what it says it was made from")
    own = record.identity in (record.digest, record.key) or record.kept_from is not None
    if not timed or not own or not HEX.fullmatch(record.digest) or not HEX.fullmatch(record.identity):
        raise reader.wrong(f"{member.name} has no proper digest, identity or time")
    return record


KEY = ("stage", "code", "config", "sources", "inputs", "libraries")
"""Fields of a record that its key is made of, in the order of `make_key`."""


def _run(store: Store, reader: Reader, staged: Path, member: Member, records: Iterable[Record]) -> Run:
    """The pack's run, all of whose artifacts have their record in the pack."""
    run = runs.read(store, staged / member.name)
    known = {record.key: store.ref(record) for record in records}
    try:
        named = run and member.name == f"runs/{runs.called(run.name, datetime.fromisoformat(run.created))}.json"
        unknown = [node for node, ref in run.nodes.items() if known.get(ref.key) != ref] if run else []
    except (TypeError, ValueError):
        named = False
    if run is None or not named or not isinstance(run.details, dict):
        raise reader.wrong(f"{member.name} is no record of a run of that name")
    if unknown:
        raise reader.wrong(f"{member.name} has an artifact of {unknown[0]} that the pack's records do not have")
    return run


def _check_objects(reader: Reader, index: Index, staged: Path, records: Iterable[Record]) -> None:
    """Raises `StoreError` unless the objects are those of the records, and have the files of their manifests."""
    given: dict[str, dict[str, tuple[int, str]]] = {}
    for name, size, sha256 in index.members:
        if name.startswith("objects/"):
            digest, _, inner = name.removeprefix("objects/").partition("/")
            given.setdefault(digest, {})[inner] = size, sha256
    wanted = {record.digest: record for record in records if record.key not in index.without}
    if not {*index.without} <= {record.key for record in records}:
        raise reader.wrong(f"{INDEX} leaves out what is not in the run")
    if given.keys() != wanted.keys():
        one = min(given.keys() ^ wanted.keys())
        raise reader.wrong(f"objects/{one[:12]} is {'of no record' if one in given else 'missing'}")
    for digest, found in given.items():
        problem = objects.problem(staged / "objects" / digest, digest, deep=False)
        if problem is None:
            del found[objects.MANIFEST]
            entries = objects.parse((staged / "objects" / digest / objects.MANIFEST).read_bytes())
            if found != {entry.name: (entry.size, entry.sha256) for entry in entries}:
                problem = f"its files are not those of its {objects.MANIFEST}"
            elif wanted[digest].bytes != sum(entry.size for entry in entries):
                problem = f"it has not the {wanted[digest].bytes:,} bytes of its record"
        if problem is not None:
            raise reader.wrong(f"objects/{digest[:12]}: {problem}")
        for folder in {path.parent for path in (staged / "objects" / digest).rglob("*")}:
            files.sync(folder)


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
    return Unpacked(run.name, run.created, there, new, sorted(kept), left_out, total, path)
