"""Records of whole runs: the artifact of each node."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from artifacts import dates, files, schema
from artifacts.errors import StoreError
from artifacts.records import Ref
from artifacts.schema import Created, FileName, Metrics, Name, RunName, first_line
from artifacts.store import Store


@dataclass(frozen=True)
class RunRecord:
    name: str
    created: str
    """ISO 8601, UTC."""
    nodes: dict[str, Ref]
    details: dict[str, Any]
    """Any JSON from the caller, such as the resolved recipe."""


@dataclass(frozen=True)
class _Node:
    """A `Ref` in a run's file, without its path, so that a store can be moved."""

    stage: Name
    key: FileName
    digest: FileName
    identity: FileName
    metrics: Metrics


@dataclass(frozen=True)
class _Record:
    """A run's file."""

    name: RunName
    created: Created
    nodes: dict[Name, _Node]
    details: dict[str, Any]


_RECORD = TypeAdapter(_Record)
SERIES = "series"
"""In the details of an update: the time of the run that trained the model."""
KINDS = ("recipe", "sentences", "ablation")
"""Names under which a run's details contain its complete recipe."""


def record_run(
    store: Store, name: str, nodes: Mapping[str, Ref], details: Mapping[str, Any], created: datetime | None = None
) -> Path:
    """Writes runs/TIMESTAMP-NAME.json. The same `created` (default: now) and name again replace the record."""
    store.prepare()
    created = (created or datetime.now(UTC)).astimezone(UTC)
    path = store.runs / f"{run_name(name, created)}.json"
    with files.storage_errors(store.root):
        files.write_file(path, dump_run(name, nodes, details, created))
    return path


def series_of(run: RunRecord) -> str:
    """The time of the run with which a series of updates begins. A run that is no update begins its own."""
    return str(run.details.get(SERIES) or run.created)


def run_name(name: str, created: datetime) -> str:
    """Returns TIMESTAMP-NAME, with characters that are valid in file names."""
    return f"{stamp(created)}-{in_file_name(name)}"


def stamp(created: datetime) -> str:
    return f"{created.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"


def dump_run(name: str, nodes: Mapping[str, Ref], details: Mapping[str, Any], created: datetime) -> bytes:
    refs = {
        node: {field: value for field, value in asdict(ref).items() if field != "path"} for node, ref in nodes.items()
    }
    created = created.astimezone(UTC)
    record = {"name": name, "created": created.isoformat(), "nodes": refs, "details": dict(details)}
    return schema.signed_json(record)


def runs(store: Store, name: str | None = None) -> list[RunRecord]:
    """Returns runs (of one name), newest first. Skips records that cannot be read."""
    return runs_and_unreadable(store, name)[0]


def runs_and_unreadable(store: Store, name: str | None = None) -> tuple[list[RunRecord], list[Path]]:
    """Returns `runs`, and the files of all records that cannot be read."""
    records = [(path, read_run(store, path)) for path in _newest_first(store)]
    named = [run for _, run in records if run is not None and name in (None, run.name)]
    return named, [path for path, run in records if run is None and path.exists()]


def readable_runs(store: Store, name: str | None = None) -> Iterator[RunRecord]:
    """Yields `runs` one by one. Raises `StoreError` when it reaches an unreadable record (of that name)."""
    for path in _newest_first(store):
        run = read_run(store, path)
        if run is None:
            of_another = name is not None and path.stem.partition("-")[2] != in_file_name(name)
            if of_another or not path.exists():  # removed since it was listed
                continue
            raise StoreError(f"{path}: not a readable record of a run; remove it to reach the runs before it")
        if name in (None, run.name):
            yield run


def in_file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def _newest_first(store: Store) -> list[Path]:
    """Sorts by the time in the file names; a time in the future (`dates`) counts as the oldest."""
    paths = files.list_paths(store.runs, ".json")
    return sorted(paths, key=lambda path: (not dates.is_future(_created(path)), path), reverse=True)


def _created(path: Path) -> str:
    """Returns the time in a record's file name, ISO 8601."""
    return path.stem.partition("-")[0]


def read_run(store: Store, path: Path) -> RunRecord | None:
    """Returns the run in a record's file; None if it cannot be read."""
    try:
        return parse_run(store, path.read_bytes())
    except (OSError, ValueError):
        return None


def parse_run(store: Store, data: bytes) -> RunRecord:
    """Returns the run in the bytes of a record's file. Raises ValueError (one line) if it is invalid."""
    try:
        record: _Record = _RECORD.validate_json(schema.without_digest(data), strict=True)
    except ValidationError as error:
        raise ValueError(first_line(error)) from None
    nodes = {node: Ref(**vars(ref), path=store.objects / ref.digest) for node, ref in record.nodes.items()}
    return RunRecord(record.name, record.created, nodes, record.details)
