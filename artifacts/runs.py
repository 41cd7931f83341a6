"""Records of whole runs: which artifact each node had."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from artifacts import dates, files, signed
from artifacts.errors import StoreError
from artifacts.records import Ref
from artifacts.store import Store


@dataclass(frozen=True)
class Run:
    name: str
    created: str
    """ISO 8601, UTC."""
    nodes: dict[str, Ref]
    details: dict[str, Any]
    """Whatever the caller gave as JSON: the resolved recipe, for one."""


def record_run(
    store: Store, name: str, nodes: Mapping[str, Ref], details: Mapping[str, Any], created: datetime | None = None
) -> Path:
    """Writes runs/TIMESTAMP-NAME.json. The same `created` (default: now) and name again replace the record."""
    store.prepare()
    created = (created or datetime.now(UTC)).astimezone(UTC)
    path = store.runs / f"{called(name, created)}.json"
    with files.storage_errors(store.root):
        files.write(path, dump(name, nodes, details, created))
    return path


def called(name: str, created: datetime) -> str:
    """TIMESTAMP-NAME, of characters that file names may have."""
    return f"{stamp(created)}-{in_file_name(name)}"


def stamp(created: datetime) -> str:
    return f"{created.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"


def dump(name: str, nodes: Mapping[str, Ref], details: Mapping[str, Any], created: datetime) -> bytes:
    # The path is left out: a store that was moved is still whole.
    refs = {
        node: {field: value for field, value in asdict(ref).items() if field != "path"} for node, ref in nodes.items()
    }
    created = created.astimezone(UTC)
    record = {"name": name, "created": created.isoformat(), "nodes": refs, "details": dict(details)}
    return signed.dump(record)


def runs(store: Store, name: str | None = None) -> list[Run]:
    """Runs (of one name), newest first. Records that cannot be read are passed over."""
    found = [read(store, path) for path in _newest_first(store)]
    return [run for run in found if run is not None and name in (None, run.name)]


def readable_runs(store: Store, name: str | None = None) -> Iterator[Run]:
    """As `runs`, one by one. Raises `StoreError` where it comes to a record (of that name) that cannot be read."""
    for path in _newest_first(store):
        run = read(store, path)
        if run is None:
            of_another = name is not None and path.stem.partition("-")[2] != in_file_name(name)
            if of_another or not path.exists():  # removed since it was listed
                continue
            raise StoreError(f"{path}: no record of a run to read; once you remove it, the runs before it are found")
        if name in (None, run.name):
            yield run


def in_file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def _newest_first(store: Store) -> list[Path]:
    """By the time in their names; one in the future (`dates`) counts as the oldest."""
    return sorted(store.runs.glob("*.json"), key=lambda path: (not dates.is_future(_created(path)), path), reverse=True)


def _created(path: Path) -> str:
    """ISO 8601 of the stamp in a record's name."""
    return path.stem.partition("-")[0]


def read(store: Store, path: Path) -> Run | None:
    """The run in a record's file; None if there is none that can be read."""
    try:
        record = signed.load(path.read_bytes())
        nodes = {node: Ref(**ref, path=store.objects / ref["digest"]) for node, ref in record["nodes"].items()}
        return Run(record["name"], record["created"], nodes, record["details"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
