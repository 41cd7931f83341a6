"""Extracts a pack's files into a folder and checks each against the pack's index, its name and the other files.

Any fault raises a `StoreError` that names the pack.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, FailFast, ValidationError

from artifacts import files, names, objects, records, runs
from artifacts.errors import StoreError
from artifacts.packs.archive import Member, Moved, Reader
from artifacts.packs.pack import FORMAT, INDEX, LONGEST_INDEX, LONGEST_LINEAGE
from artifacts.records import HEX, Record
from artifacts.runs import KINDS, RunRecord
from artifacts.schema import Count, Created, Hex, RunName, first_line
from artifacts.store import Store

SHORTEST = 32
"""Smallest mean bytes per value of an index: most values are digests and names with digests."""
FOLDERS = ("runs", "keys", "objects")
"""In their order in a pack."""


class PackIndex(BaseModel):
    """pack.json."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: int
    recipe: RunName
    created: Created
    without: Annotated[list[Hex], FailFast()]
    """Keys whose objects are not in the pack."""
    members: Annotated[list[tuple[str, Count, Hex]], FailFast()]


class Format(BaseModel):
    """The part of pack.json that all versions share."""

    model_config = ConfigDict(strict=True)

    format: int


def read_index(reader: Reader) -> tuple[PackIndex, str]:
    """Returns the pack's index, and a name for its unpacking, unique to this pack."""
    name, size = reader.header() or ("nothing", 0)
    if name != INDEX or size > LONGEST_INDEX:
        raise reader.wrong(f"not a pack of a run: it begins with {names.one_line(name)} of {size:,} bytes")
    data = b"".join(reader.content(size))
    if data.count(b",") > size // SHORTEST + 64:  # before parsing: tiny values take 50 times their bytes
        raise reader.wrong(f"{INDEX} is not the index of a pack")
    try:
        version = Format.model_validate_json(data).format
        if version != FORMAT:
            raise reader.wrong(f"a pack of format {version}; this version reads {FORMAT}")
        index = PackIndex.model_validate_json(data)
    except ValidationError as error:
        raise reader.wrong(f"{INDEX}: {first_line(error)}") from None
    member_names = [member[0] for member in index.members]
    for name in member_names:
        if not _has_place(name):
            raise reader.wrong(f"{INDEX} names {names.one_line(name)}, which has no place in a store")
    if sum(name.startswith("runs/") for name in member_names) != 1:
        raise reader.wrong(f"{INDEX} does not name one run")
    if duplicate := names.clash(member_names):
        raise reader.wrong(f"{INDEX} names a file twice: {names.one_line(duplicate)}")
    if member_names != sorted(member_names, key=_folder):
        raise reader.wrong(f"{INDEX} names files out of order")
    lineage = sum(size for name, size, _ in index.members if not name.startswith("objects/"))
    if lineage > LONGEST_LINEAGE:
        raise reader.wrong(f"{INDEX} names {lineage:,} bytes of records, more than the {LONGEST_LINEAGE:,} of a run")
    manifests = [size for name, size, _ in index.members if is_manifest(name)]
    if max(manifests, default=0) > LONGEST_INDEX:
        raise reader.wrong(f"{INDEX} names a {objects.MANIFEST} of {max(manifests):,} bytes")
    return index, f"unpack-{hashlib.sha256(data).hexdigest()}"


def _folder(name: str) -> int:
    return FOLDERS.index(name.partition("/")[0])


def _has_place(name: str) -> bool:
    """Whether `name` is a valid file name inside a pack."""
    match name.split("/"):
        case ["runs", file]:
            return names.fault(file) is None and file.endswith(".json")
        case ["keys", file]:
            return bool(HEX.fullmatch(file.removesuffix(".json"))) and file.endswith(".json")
        case ["objects", digest, *inner]:
            return bool(HEX.fullmatch(digest)) and names.fault("/".join(inner)) is None
    return False


def read_lineage(
    store: Store, reader: Reader, index: PackIndex, staged: Path, moved: Moved
) -> tuple[RunRecord, list[Record]]:
    """Writes the pack's run and records below `staged`, checks and returns them."""
    members = _members(index, of_objects=False)
    for member in members:
        _write(reader, member, staged, moved)
    records = [_record(reader, staged, member) for member in members if member.name.startswith("keys/")]
    return _run(store, reader, staged, members[0], records), records


def read_objects(reader: Reader, index: PackIndex, staged: Path, records: Iterable[Record], moved: Moved) -> None:
    """Writes the rest of the pack below `staged`, and checks that it consists of the objects of `records`."""
    files_of = objects_of(reader, index, records)
    for member in _members(index, of_objects=True):
        _write(reader, member, staged, moved)
    check_end(reader)
    for record in records:
        if record.digest in files_of:
            check_object(reader.wrong, staged, record, files_of[record.digest])


def check_end(reader: Reader) -> None:
    """Raises `StoreError` if the archive has a further file."""
    if reader.header() is not None:
        raise reader.wrong("holds more files than its index")


def objects_of(reader: Reader, index: PackIndex, records: Iterable[Record]) -> dict[str, list[Member]]:
    """Returns {digest: files} of the objects in the index, after a check that they are those of `records`."""
    found: dict[str, list[Member]] = {}
    for member in _members(index, of_objects=True):
        found.setdefault(member.name.split("/")[1], []).append(member)
    wanted = {record.digest for record in records if record.key not in index.without}
    if not {*index.without} <= {record.key for record in records}:
        raise reader.wrong(f"{INDEX} leaves out artifacts that are not in the run")
    if found.keys() != wanted:
        one = min(found.keys() ^ wanted)
        raise reader.wrong(f"objects/{one[:12]} {'has no record' if one in found else 'is missing'}")
    return found


def check_object(wrong: Callable[[str], StoreError], staged: Path, record: Record, members: Iterable[Member]) -> None:
    """Raises `wrong` unless the written `members` of an object match its manifest and its record; syncs its folders."""
    folder = staged / "objects" / record.digest
    problem = objects.problem(folder, record.digest, deep=False)
    if problem is None:
        entries = objects.parse_manifest((folder / objects.MANIFEST).read_bytes())
        listed = {Member(f"objects/{record.digest}/{entry.name}", entry.size, entry.sha256) for entry in entries}
        if {member for member in members if not is_manifest(member.name)} != listed:
            problem = f"its files do not match its {objects.MANIFEST}"
        elif record.bytes != sum(entry.size for entry in entries):
            problem = f"it does not have the {record.bytes:,} bytes of its record"
    if problem is not None:
        raise wrong(f"objects/{record.digest[:12]}: {problem}")
    for path in {path.parent for path in folder.rglob("*")}:
        files.sync(path)


def is_manifest(name: str) -> bool:
    """Whether a member is the manifest of an object."""
    return name.split("/")[2:] == [objects.MANIFEST]


def _members(index: PackIndex, of_objects: bool) -> list[Member]:
    """Returns the members of objects, or those before them: the run and its records."""
    return [Member(*member) for member in index.members if member[0].startswith("objects/") == of_objects]


def _write(reader: Reader, member: Member, staged: Path, moved: Moved) -> None:
    """Writes the archive's next file, which must be `member`, and flushes it to disk."""
    name, size = reader.header() or ("nothing", 0)
    if (name, size) != (member.name, member.size):
        next_file = f"{names.one_line(name)} of {size:,} bytes"
        raise reader.wrong(f"holds {next_file}, but its index has {names.one_line(member.name)} of {member.size:,}")
    write_member(reader.wrong, member, staged, reader.content(size), moved)


def write_member(
    wrong: Callable[[str], StoreError], member: Member, staged: Path, pieces: Iterable[bytes], moved: Moved
) -> None:
    """Writes the bytes of a member below `staged` and flushes them to disk. Raises `wrong` if their hash differs."""
    path, sha = staged / member.name, hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        for piece in pieces:
            out.write(piece)
            sha.update(piece)
            moved(len(piece))
        out.flush()
        os.fsync(out.fileno())
    if sha.hexdigest() != member.sha256:
        raise wrong(f"{member.name} was changed")


def _record(reader: Reader, staged: Path, member: Member) -> Record:
    """Returns the valid record of a key's file, after a check that it belongs to that key."""
    try:
        record = records.parse_record((staged / member.name).read_bytes())
    except ValueError as error:
        raise reader.wrong(f"{member.name} is not a record: {error}") from None
    if member.name != f"keys/{record.key}.json" or not records.agrees(record):
        raise reader.wrong(f"{member.name} does not match its own inputs")
    return record


def _run(store: Store, reader: Reader, staged: Path, member: Member, records: Iterable[Record]) -> RunRecord:
    """Returns the pack's run, after a check that the pack has the record of each of its artifacts."""
    try:
        run = runs.parse_run(store, (staged / member.name).read_bytes())
    except ValueError as error:
        raise reader.wrong(f"{member.name} is not a record of a run: {error}") from None
    if member.name != f"runs/{runs.run_name(run.name, datetime.fromisoformat(run.created))}.json":
        raise reader.wrong(f"{member.name} is not a record of a run of that name")
    if not any(isinstance(run.details.get(kind), dict) for kind in KINDS):
        raise reader.wrong(f"{member.name} does not contain its recipe")
    known = {record.key: store.ref(record) for record in records}
    unknown = [node for node, ref in run.nodes.items() if known.get(ref.key) != ref]
    if unknown:
        raise reader.wrong(f"{member.name} has an artifact of {unknown[0]} that is not in the pack's records")
    return run
