"""A pack's files into a folder, each checked against the pack's index, its own name and the other files.

What is wrong is told by a `StoreError` that names the pack.
"""

import hashlib
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, FailFast, ValidationError

from artifacts import files, names, objects, records, runs
from artifacts.archive import Member, Moved, Reader
from artifacts.pack import FORMAT, INDEX, LONGEST_INDEX, LONGEST_LINEAGE
from artifacts.records import HEX, Record
from artifacts.runs import KINDS, Run
from artifacts.schema import Count, Created, Hex, RunName, first_line
from artifacts.store import Store

SHORTEST = 32
"""Bytes of an index for each of its values at least: most are digests and names with digests."""
FOLDERS = ("runs", "keys", "objects")
"""In the order in which a pack holds them."""


class Index(BaseModel):
    """pack.json."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: int
    recipe: RunName
    created: Created
    without: Annotated[list[Hex], FailFast()]
    """Keys whose objects are left out."""
    members: Annotated[list[tuple[str, Count, Hex]], FailFast()]


class Format(BaseModel):
    """What any version's pack.json has."""

    model_config = ConfigDict(strict=True)

    format: int


def read_index(reader: Reader) -> tuple[Index, str]:
    """The pack's index, and a name for the import of this very pack."""
    name, size = reader.header() or ("nothing", 0)
    if name != INDEX or size > LONGEST_INDEX:
        raise reader.wrong(f"no pack of a run: it begins with {names.one_line(name)} of {size:,} bytes")
    data = b"".join(reader.content(size))
    if data.count(b",") > size // SHORTEST + 64:  # before it is parsed: tiny values take 50 times their bytes
        raise reader.wrong(f"{INDEX} is no index of a pack")
    try:
        found = Format.model_validate_json(data).format
        if found != FORMAT:
            raise reader.wrong(f"a pack of format {found}; this version reads {FORMAT}")
        index = Index.model_validate_json(data)
    except ValidationError as error:
        raise reader.wrong(f"{INDEX}: {first_line(error)}") from None
    given = [member[0] for member in index.members]
    for name in given:
        if not _has_place(name):
            raise reader.wrong(f"{INDEX} names {names.one_line(name)}, which has no place in a store")
    if sum(name.startswith("runs/") for name in given) != 1:
        raise reader.wrong(f"{INDEX} does not name one run")
    if twice := names.clash(given):
        raise reader.wrong(f"{INDEX} names a file twice: {names.one_line(twice)}")
    if given != sorted(given, key=_folder):
        raise reader.wrong(f"{INDEX} names files out of their order")
    lineage = sum(size for name, size, _ in index.members if not name.startswith("objects/"))
    if lineage > LONGEST_LINEAGE:
        raise reader.wrong(f"{INDEX} names {lineage:,} bytes of records, more than the {LONGEST_LINEAGE:,} of a run")
    manifests = [size for name, size, _ in index.members if name.split("/")[2:] == [objects.MANIFEST]]
    if max(manifests, default=0) > LONGEST_INDEX:
        raise reader.wrong(f"{INDEX} names a {objects.MANIFEST} of {max(manifests):,} bytes")
    return index, f"import-{hashlib.sha256(data).hexdigest()}"


def _folder(name: str) -> int:
    return FOLDERS.index(name.partition("/")[0])


def _has_place(name: str) -> bool:
    """Whether it may be a file of a pack: of a name that leads nowhere else."""
    match name.split("/"):
        case ["runs", file]:
            return names.fault(file) is None and file.endswith(".json")
        case ["keys", file]:
            return bool(HEX.fullmatch(file.removesuffix(".json"))) and file.endswith(".json")
        case ["objects", digest, *inner]:
            return bool(HEX.fullmatch(digest)) and names.fault("/".join(inner)) is None
    return False


def read_lineage(store: Store, reader: Reader, index: Index, staged: Path, moved: Moved) -> tuple[Run, list[Record]]:
    """Writes the pack's run and its records below `staged`, checks them and gives them."""
    members = _members(index, of_objects=False)
    for member in members:
        _write(reader, member, staged, moved)
    records = [_record(reader, staged, member) for member in members if member.name.startswith("keys/")]
    return _run(store, reader, staged, members[0], records), records


def read_objects(reader: Reader, index: Index, staged: Path, records: Iterable[Record], moved: Moved) -> None:
    """Writes the rest of the pack below `staged`, and checks that it is the objects of `records`."""
    for member in _members(index, of_objects=True):
        _write(reader, member, staged, moved)
    if reader.header() is not None:
        raise reader.wrong("holds more than its index says")
    _check_objects(reader, index, staged, records)


def _members(index: Index, of_objects: bool) -> list[Member]:
    """The files of objects, or those before them: the run and its records."""
    return [Member(*member) for member in index.members if member[0].startswith("objects/") == of_objects]


def _write(reader: Reader, member: Member, staged: Path, moved: Moved) -> None:
    """Writes the archive's next file, which must be `member`, and puts it on disk."""
    name, size = reader.header() or ("nothing", 0)
    if (name, size) != (member.name, member.size):
        found = f"{names.one_line(name)} of {size:,} bytes"
        raise reader.wrong(f"holds {found} where its index has {names.one_line(member.name)} of {member.size:,}")
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
        record = records.parse((staged / member.name).read_bytes())
    except ValueError as error:
        raise reader.wrong(f"{member.name} is no record: {error}") from None
    if member.name != f"keys/{record.key}.json" or not records.agrees(record):
        raise reader.wrong(f"{member.name} is not of what it says it was made from")
    return record


def _run(store: Store, reader: Reader, staged: Path, member: Member, records: Iterable[Record]) -> Run:
    """The pack's run, all of whose artifacts have their record in the pack."""
    try:
        run = runs.parse(store, (staged / member.name).read_bytes())
    except ValueError as error:
        raise reader.wrong(f"{member.name} is no record of a run: {error}") from None
    if member.name != f"runs/{runs.called(run.name, datetime.fromisoformat(run.created))}.json":
        raise reader.wrong(f"{member.name} is no record of a run of that name")
    if not any(isinstance(run.details.get(kind), dict) for kind in KINDS):
        raise reader.wrong(f"{member.name} does not say its recipe")
    known = {record.key: store.ref(record) for record in records}
    unknown = [node for node, ref in run.nodes.items() if known.get(ref.key) != ref]
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
