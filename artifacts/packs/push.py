"""Sends a run, with all artifacts that it was built from, to a remote folder, from where `pull` gets it."""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from artifacts import runs
from artifacts.dates import moment
from artifacts.errors import StoreError
from artifacts.objects import MANIFEST
from artifacts.packs import archive
from artifacts.packs.archive import Member, Moved
from artifacts.packs.pack import ENDING, Report, check_lengths, contents
from artifacts.packs.remote_folder import PARTIAL, RemoteFolder
from artifacts.runs import RunRecord
from artifacts.store import Store

Sources = list[tuple[Member, Path | bytes]]
"""Files, each with its local source."""


@dataclass(frozen=True)
class Pushed:
    """What `push` sent."""

    address: str
    run: str
    """TIMESTAMP-RECIPE, the run's name at the address."""
    recipe: str
    created: str
    """Time of the run; ISO 8601, UTC."""
    artifacts: int
    new: int
    """Artifacts that the address did not have whole."""
    left_out: list[str]
    """Nodes whose files were not to be sent."""
    bytes: int
    """Size of the run."""
    sent: int
    """Bytes that were sent."""


def push(
    store: Store,
    run: RunRecord,
    address: str,
    without: Collection[str] = (),
    report: Report = lambda done, total: None,
) -> Pushed:
    """Sends what the address does not have: the files of each artifact, its manifest, and last the run.

    `without`: nodes or stages whose lineage is sent without their files. A file of the right size in an artifact
    without its manifest counts as sent, so that the same call continues an interrupted one. Every file is hashed while
    it is sent. Raises `StoreError` if an artifact is damaged or the address cannot be written; then the address has
    no record of the run, or its earlier one.
    """
    target = RemoteFolder(address)
    if target.has("format.json"):
        raise target.fault("", "is a store; choose another address")
    target.check_outside_stores()
    with contents(store, run, without) as packed:
        check_lengths(target.shown, packed)
        lineage, objects = split(packed.files)
        with TemporaryDirectory() as folder:
            archive.write_archive(Path(folder) / "run", lineage, lambda count: None)
            data = (Path(folder) / "run").read_bytes()
        missing = [files for of_object in objects if (files := missing_files(target, of_object))]
        name = runs.run_name(run.name, moment(run.created))
        record = Member(f"runs/{name}{ENDING}", len(data), hashlib.sha256(data).hexdigest())
        to_send = [file for files in missing for file in files]
        if not is_there(target, record, target.sizes("runs").get(f"{name}{ENDING}")):
            to_send.append((record, data))
        total, done = sum(member.size for member, _ in to_send), 0

        def moved(count: int) -> None:
            nonlocal done
            done += count
            report(done, total)

        for member, source in to_send:
            target.write(member.name, hashed(member, source, moved))
    return Pushed(
        target.shown,
        name,
        run.name,
        run.created,
        packed.artifacts,
        len(missing),
        packed.left_out,
        packed.bytes,
        done,
    )


def split(files: Sources) -> tuple[Sources, list[Sources]]:
    """Returns the records, and the files of each object with its manifest first, as they are in a pack."""
    lineage: Sources = []
    objects: dict[str, Sources] = {}
    for member, source in files:
        folder, _, inner = member.name.partition("/")
        if folder == "objects":
            objects.setdefault(inner.partition("/")[0], []).append((member, source))
        else:
            lineage.append((member, source))
    return lineage, [*objects.values()]


def missing_files(target: RemoteFolder, of_object: Sources) -> Sources:
    """Returns the files to send, the manifest last. Empty if the address has them all."""
    (manifest, source), *others = of_object
    folder = manifest.name.removesuffix(MANIFEST)
    there = target.sizes(folder.rstrip("/"))
    for name in there:
        if PARTIAL.fullmatch(name.rpartition("/")[2]):
            target.remove_abandoned(f"{folder}{name}")
    missing = [(member, path) for member, path in others if there.get(member.name.removeprefix(folder)) != member.size]
    if not missing and is_there(target, manifest, there.get(MANIFEST)):
        return []
    return [*missing, (manifest, source)]


def is_there(target: RemoteFolder, member: Member, size: int | None) -> bool:
    """Whether the address has the file with the same bytes; `size`: of the file there, None if there is none."""
    return size == member.size and hashlib.sha256(target.read(member.name, size)).hexdigest() == member.sha256


def hashed(member: Member, source: Path | bytes, moved: Moved) -> Iterator[bytes]:
    """Yields the source in pieces. Raises `StoreError` at its end if it is not what the manifest says."""
    sha = hashlib.sha256()
    for piece in local_pieces(source):
        sha.update(piece)
        yield piece
        moved(len(piece))
    if sha.hexdigest() != member.sha256:
        raise StoreError(f"{source!s}: was changed; `cocondenser artifacts verify` sets its artifact aside")


def local_pieces(source: Path | bytes) -> Iterator[bytes]:
    """Yields a local file's bytes, or the given bytes, in pieces."""
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while piece := file.read(archive.CHUNK):
            yield piece


def pushed_runs(address: str) -> list[str]:
    """Returns the runs at the address as TIMESTAMP-RECIPE, newest first. Raises `StoreError` if it has none."""
    return RemoteFolder(address).runs()
