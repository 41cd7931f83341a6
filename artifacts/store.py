"""The content-addressed store: looks up artifacts, and builds each once."""

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from artifacts import dates, files, locks, objects, records, sources, versions
from artifacts.build_clock import Clock
from artifacts.errors import Damaged, StoreError
from artifacts.keys import Key, code_hash
from artifacts.locks import Holder
from artifacts.records import Record, Ref

FORMAT = 1
Make = Callable[[Path, Path], Mapping[str, Any]]
"""(the artifact's folder, that of checkpoints) -> metrics."""


def ignore(line: str) -> None:
    """For callers without a terminal."""


@dataclass(frozen=True)
class Request:
    """What `Store.build` is to find or to build."""

    key: Key
    node: str
    identity: Literal["content", "key"] = "content"
    """`key` where the bytes vary from build to build."""
    recipe: str | None = None
    """Its name, for the record."""
    keep: bool = False
    """Accept the newest artifact that differs from `key` in code alone."""
    refresh_since: datetime | None = None
    """What was created before then (with its time zone) counts neither as an artifact nor as a checkpoint."""
    reads: Mapping[str, Ref | None] = field(default_factory=dict)
    """The artifacts that are read, by the names of the key's inputs: `check` looks at them before and after the build,
    and the lineage follows their keys."""


@dataclass(frozen=True)
class Hooks:
    """What a build calls."""

    on_wait: Callable[[Holder], None] | None = None
    """With the process that is at the same key."""
    on_damage: Callable[[str], None] = ignore
    """With a line for an artifact of the key that is damaged, and so set aside (`Store.condemn`)."""
    gpus: Callable[[], int | None] = lambda: None
    """For the record: how many GPUs the build has held."""
    precision: Callable[[], str | None] = lambda: None
    """For the record: the type of the build's products."""
    clock: Clock | None = None
    """Runs in `make` while that is at work. None: all the time."""


@dataclass(frozen=True)
class Built:
    """What `Store.build` returns."""

    ref: Ref
    hit: bool
    """False: this call built it."""
    kept: bool
    """True: a hit on an artifact of older code, accepted by `keep`."""


class Store:
    """A folder of artifacts, created at the first write. Raises `StoreError` if its format is newer.

    Layout:
        format.json                   {"format": 1}
        objects/DIGEST/               an artifact's files and manifest.json; DIGEST = SHA-256 of the manifest
        keys/KEY.json                 `records.Record`; its mtime is the time of its last use
        locks/KEY.lock, commit.lock   flock; commit.lock is held briefly, while objects and keys change
        work/KEY/                     a current or killed build: out, checkpoints, begun, seconds, tracking.json
        work/unpack-DIGEST/           a current or killed unpacking of a pack (artifacts/packs/unpack.py)
        broken/                       set aside: damaged files, and what may have been built from them
        verified/DIGEST               the last time that the object was hashed and found whole
        runs/TIMESTAMP-NAME.json      the artifact of each node of a run
        sources.json                  cache of source digests
        kept/STAGE/                   what a stage must not ask for twice; nothing removes it
        logs/                         of trainings, for TensorBoard (flows/graph/run_nodes.py)
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root).absolute()
        self.format = self.root / "format.json"
        self.objects = self.root / "objects"
        self.keys = self.root / "keys"
        self.locks = self.root / "locks"
        self.work = self.root / "work"
        self.broken = self.root / "broken"
        self.verified = self.root / "verified"
        self.runs = self.root / "runs"
        self.sources = self.root / "sources.json"
        self.kept = self.root / "kept"
        self._cache: dict[Path, tuple[tuple[int, int, int], Record | None]] = {}
        _check_format(self.format)

    @classmethod
    def of(cls, ref: Ref) -> "Store":
        """Returns the store that contains an artifact."""
        return cls(ref.path.parents[1])

    def is_other_folder(self) -> bool:
        """Whether the folder has other files, and is no store. Hidden files and those of a new disk do not count."""
        if not self.root.is_dir():
            return False
        own = {self.objects, self.keys, self.locks, self.work, self.broken, self.verified, self.runs, self.sources}
        known = own | {self.kept, self.root / "logs", self.root / "lost+found"}
        others = [path for path in self.root.iterdir() if path not in known and not path.name.startswith(".")]
        # Read last: another process may just be creating the store.
        return bool(others) and not self.format.exists()

    def prepare(self) -> None:
        """Creates the missing folders. Raises `StoreError` if that fails."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.format.exists():
                files.write_file(self.format, json.dumps({"format": FORMAT}).encode() + b"\n")
            for folder in (self.objects, self.keys, self.locks, self.work, self.broken, self.runs):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"{error.filename or self.root}: {str(error.strerror).lower()}") from error

    def source_digests(self, named: Mapping[str, Path]) -> dict[str, str]:
        """Returns `sources.digests`, with this store's cache.

        Also raises `StoreError` if a source is inside a damaged artifact, of this store or another.
        """
        with suppress(StoreError):
            self.prepare()
        for name, path in named.items():
            for folder in objects.around(path):
                problem = None if objects.hashed(folder) else objects.problem(folder, folder.name, deep=True)
                if problem is not None:
                    nodes = (record.node for record in self.records() if record.digest == folder.name)
                    verify = f"`cocondenser artifacts verify --store {folder.parents[1]}`"
                    where = f"{folder.parents[1]}: {next(nodes, name)} (objects/{folder.name[:12]})"
                    raise StoreError(f"{where}: {problem}; {verify} sets it aside")
        return sources.digests(named, self.sources)

    def lookup(self, key: Key) -> Ref | None:
        """Returns the artifact of `key`, or of equivalent code, if it is complete (stat only)."""
        record = self.record(key.hex)
        if record is None or self.problem(record) is not None:
            record = self.equivalent(key)
        if record is None:
            return None
        self.use(record)
        return self.ref(record)

    def build(self, request: Request, make: Make, hooks: Hooks = Hooks()) -> Built:
        """The artifact of `request`; built by `make(out, checkpoints) -> metrics` if it is not there.

        `out` is an empty folder; what it holds at the end is the artifact. `checkpoints` survives kills and exceptions,
        and is removed once the artifact is filed. Raises `Damaged` where an artifact that is read is, `StoreError` on a
        full or read-only disk, else whatever `make` raises.
        """
        self.prepare()
        key = request.key
        with files.storage_errors(self.root):
            found = self._accept(request, hooks.on_damage)
            if found is not None:
                return found
            with locks.hold(self.lock_file(key.hex), locks.holder(key.stage, request.node, key.inputs), hooks.on_wait):
                found = self._accept(request, hooks.on_damage)
                if found is not None:
                    return found
                return Built(self._make(request, make, hooks), hit=False, kept=False)

    def equivalent(self, key: Key) -> Record | None:
        """Returns the newest whole artifact of older code that builds the same bytes (`key.equivalent`)."""
        if not key.equivalent.code:
            return None
        known = (record for record in self.records_of(key) if code_hash(record.code) in key.equivalent.code)
        same = (record for record in known if _same_but_code(record, key))
        return next((record for record in same if self.problem(record) is None), None)

    def older(self, key: Key) -> Record | None:
        """Returns the newest whole artifact that differs from `key` only in code (under today's names)."""
        same = (record for record in self.records_of(key) if record.key != key.hex and _same_but_code(record, key))
        return next((record for record in same if self.problem(record) is None), None)

    def records_of(self, key: Key) -> list[Record]:
        """Returns the records of the key's stage, newest first; then those of its older names."""
        return [record for stage in (key.stage, *key.equivalent.stages) for record in self.records(stage)]

    def records(self, stage: str | None = None) -> list[Record]:
        """Returns all records (of one stage), newest first."""
        found = [record for path in files.list_paths(self.keys, ".json") if (record := self._read(path)) is not None]
        wanted = [record for record in found if stage in (None, record.stage)]
        return sorted(wanted, key=lambda record: dates.age(record.created), reverse=True)

    def record(self, key: str) -> Record | None:
        """Returns the record of a key (hex), whatever the state of its artifact."""
        return self._read(self.keys / f"{key}.json")

    def show(self, which: str) -> Record:
        """Returns the newest record of a stage or node, or of a key or digest prefix. `StoreError` if none."""
        everything = self.records()
        named = [record for record in everything if which in (record.stage, record.node)]
        matching = [r for r in everything if which and (r.key.startswith(which) or r.digest.startswith(which))]
        if not named and not matching:
            raise StoreError(f"{self.root}: holds no artifact {which!r}")
        if not named and len({record.digest for record in matching}) > 1:
            raise StoreError(f"{self.root}: {len(matching)} artifacts begin with {which!r}: give more of its digest")
        return (named or matching)[0]

    def ref(self, record: Record) -> Ref:
        path = self.objects / record.digest
        return Ref(record.stage, record.key, record.digest, record.identity, path, dict(record.metrics))

    def problem(self, record: Record) -> str | None:
        """Returns the fault of the record's artifact, with the file's name (stat only); None if it is whole."""
        line = self.inspect(record.digest, deep=False)
        return None if line is None else f"objects/{record.digest[:12]}: {line}"

    def inspect(self, digest: str, deep: bool) -> str | None:
        """Returns the fault of an object, None if it is whole; sets nothing aside."""
        started_at = _now()
        problem = objects.problem(self.objects / digest, digest, deep)
        if problem is None and deep:
            self._note_whole(digest, started_at)
        return problem

    def whole(self, digest: str) -> str | None:
        """Returns the result of a deep `inspect`. A process hashes an object once."""
        return None if objects.hashed(self.objects / digest) else self.inspect(digest, deep=True)

    def check(self, refs: Iterable[Ref]) -> None:
        """Raises `Damaged` for the first artifact that is not `whole`, after `condemn`."""
        for ref in refs:
            line = self.clear(ref.stage, ref.digest)
            if line is not None:
                raise Damaged(line)

    def clear(self, stage: str, digest: str, deep: bool = True) -> str | None:
        """Condemns an object that is not `whole` (not `deep`: of the wrong size). Returns a line about it or None."""
        folder = self.objects / digest
        inode = folder.lstat().st_ino if os.path.lexists(folder) else None
        problem = self.whole(digest) if deep else self.inspect(digest, deep=False)
        if problem is None:
            return None
        also = [] if inode is None else self.condemn(digest, inode)
        aside = "; ".join(["" if inode is None else ": set aside", *also])
        return f"{self.root}: {stage} (objects/{digest[:12]}): {problem}{aside}"

    def condemn(self, digest: str, inode: int) -> list[str]:
        """Sets a damaged object aside (by its inode), after all that may be built from it. Returns a line for each."""
        everything = self.records()
        suspect_records = records.suspects_of(everything, digest, self._last_whole(digest))
        suspect_keys = {record.key for record in suspect_records}
        kept = {digest, *(record.digest for record in everything if record.key not in suspect_keys)}
        for record in suspect_records:
            key, folder = self.keys / f"{record.key}.json", self.objects / record.digest
            for path in [key, *([] if record.digest in kept else [folder])]:
                with suppress(FileNotFoundError):
                    self.set_aside(path, path.lstat().st_ino)
        self.set_aside(self.objects / digest, inode)
        return [
            f"{record.node} (objects/{record.digest[:12]}) may be built from damaged bytes: set aside"
            for record in suspect_records
        ]

    def set_aside(self, path: Path, inode: int) -> None:
        """Moves a broken file or folder to broken/, unless another one (by its inode) has replaced it meanwhile."""
        with self.commit_lock(), suppress(FileNotFoundError):
            if path.lstat().st_ino == inode:
                self.broken.mkdir(exist_ok=True)
                path.rename(self.broken / f"{path.name}-{time.time_ns()}")

    def _note_whole(self, digest: str, when: str) -> None:
        # If this fails (read-only store, full disk), more is built again.
        with suppress(OSError):
            self.verified.mkdir(exist_ok=True)
            files.write_file(self.verified / digest, when.encode())

    def _last_whole(self, digest: str) -> datetime | None:
        try:
            return dates.moment((self.verified / digest).read_text())
        except (OSError, ValueError):
            return None

    def file(self, out: Path, record: Record, on_damage: Callable[[str], None] = ignore) -> Ref:
        """Moves a sealed folder into the store, unless it has equal content already, and writes the record.

        `on_damage` is called with a line if the present object is damaged and therefore condemned.
        """
        target = self.objects / record.digest
        self._clear(record, on_damage, deep=True)
        with self.commit_lock():
            if not target.exists():
                out.rename(target)
                files.sync(self.objects)
            self.write(record)
        return self.ref(record)

    def write(self, record: Record) -> None:
        """Writes a record. Call it under `commit_lock`."""
        files.write_file(self.keys / f"{record.key}.json", records.dump_record(record))

    def use(self, record: Record) -> None:
        """Notes that the record's artifact is used now, for `gc`."""
        with suppress(OSError):
            os.utime(self.keys / f"{record.key}.json")

    def commit_lock(self) -> AbstractContextManager[None]:
        return locks.hold(self.locks / "commit.lock")

    def lock_file(self, key: str) -> Path:
        return self.locks / f"{key}.lock"

    def _accept(self, request: Request, on_damage: Callable[[str], None]) -> Built | None:
        key, since = request.key, request.refresh_since
        for record in self._candidates(key):
            old = record is not None and since is not None and dates.age(record.created) < (True, since)
            if record is not None and not old and self._clear(record, on_damage, deep=False):
                self.use(record)
                return Built(self.ref(record), hit=True, kept=record.kept_from is not None)
        older = self.older(key) if request.keep and since is None else None
        if older is None:
            return None
        own = {**_components(key), "node": request.node, "recipe": request.recipe, "created": _now()}
        record = replace(older, **own, kept_from=older.key)
        with self.commit_lock():
            self.write(record)
        return Built(self.ref(record), hit=True, kept=True)

    def _candidates(self, key: Key) -> Iterator[Record | None]:
        yield self.record(key.hex)
        yield self.equivalent(key)

    def _make(self, request: Request, make: Make, hooks: Hooks) -> Ref:
        key, identity = request.key, request.identity
        work, clock = self.work / key.hex, hooks.clock or Clock()
        out = work / "out"
        inputs = {name: ref for name, ref in request.reads.items() if ref is not None}
        try:
            with files.storage_errors(self.root):
                self.check(inputs.values())
                checkpoints = _start(work, request.refresh_since)
                files.empty_folder(out)
                with nullcontext() if hooks.clock else clock.at_work(work):
                    metrics = records.plain_metrics(make(out, checkpoints))
                self.check(inputs.values())
                known = all(name in inputs for name in key.inputs)
                digest, size = objects.seal(out)
                record = Record(
                    **_components(key),
                    node=request.node,
                    digest=digest,
                    identity=digest if identity == "content" else key.hex,
                    metrics=metrics,
                    bytes=size,
                    seconds=round(clock.seconds, 3),
                    host=socket.gethostname(),
                    versions=versions.recorded_versions(),
                    created=_now(),
                    kept_from=None,
                    recipe=request.recipe,
                    gpus=hooks.gpus(),
                    precision=hooks.precision(),
                    input_keys={name: ref.key for name, ref in inputs.items()} if known else None,
                    checked={name: ref.digest for name, ref in inputs.items()} if known else None,
                )
                ref = self.file(out, record, hooks.on_damage)
        except BaseException:
            # Bad input, most often: without a checkpoint there is nothing to resume from.
            shutil.rmtree(out if any((work / "checkpoints").glob("*")) else work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)
        return ref

    def _clear(self, record: Record, on_damage: Callable[[str], None], deep: bool) -> bool:
        """Whether the record's object is whole (`deep`: hashed); reports one that is present but damaged."""
        exists = os.path.lexists(self.objects / record.digest)
        line = self.clear(record.stage, record.digest, deep)
        if line is not None and exists:
            on_damage(line)
        return line is None

    def _read(self, path: Path) -> Record | None:
        try:
            stat = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{path}: {str(error.strerror).lower()}") from None
        state = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if path not in self._cache or self._cache[path][0] != state:
            self._cache[path] = (state, records.read_record(path))
        return self._cache[path][1]


def _check_format(path: Path) -> None:
    try:
        version = json.loads(path.read_bytes())["format"]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise StoreError(f"{path.parent}: not a folder") from None
    except PermissionError:
        raise StoreError(f"{path}: permission denied") from None
    except OSError as error:
        raise StoreError(f"{path}: {str(error.strerror).lower()}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StoreError(f"{path}: not the format file of a store") from None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(f"{path}: not the format file of a store")
    if version > FORMAT:
        raise StoreError(f"{path}: format {version} is newer than {FORMAT}, the newest that this version reads")


def _start(work: Path, since: datetime | None) -> Path:
    """Returns the folder of checkpoints; removes those of a build that started before `since`."""
    start = work / "begun"
    if since is not None and start.exists() and start.stat().st_mtime < since.timestamp():
        shutil.rmtree(work)
    checkpoints = work / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    if not start.exists():
        start.touch()
    return checkpoints


def _components(key: Key) -> dict[str, Any]:
    return key.components() | {"key": key.hex}


def _same_but_code(record: Record, key: Key) -> bool:
    """Whether all parts but the code are equal, under today's names of fields and inputs."""
    todays = key.equivalent
    return (record.sources, record.libraries) == (key.sources, key.libraries) and (
        todays.config(record.config),
        todays.inputs(record.inputs),
    ) == (key.config, key.inputs)


def _now() -> str:
    return datetime.now(UTC).isoformat()
