"""Gets a run from an address (packs/remote_folder.py) into a store; only what the store does not have."""

from collections.abc import Callable
from pathlib import Path

from artifacts import files
from artifacts.errors import StoreError
from artifacts.locks import Holder
from artifacts.packs import archive
from artifacts.packs.archive import Member
from artifacts.packs.pack import ENDING, LONGEST_INDEX, LONGEST_LINEAGE, Report
from artifacts.packs.remote_folder import RemoteFolder
from artifacts.packs.staging import check_end, check_object, objects_of, read_index, read_lineage, write_member
from artifacts.packs.unpack import Unpacked, check_room, clear_damaged, file, settled, staging_folder
from artifacts.records import Record
from artifacts.store import Store


def pull(
    store: Store,
    address: str,
    which: str | None = None,
    replace: bool = False,
    report: Report = lambda done, total: None,
    on_wait: Callable[[Holder], None] | None = None,
) -> Unpacked:
    """Adds a run at the address to the store: its artifacts one by one, and last the run's record.

    `which`: see `RemoteFolder.find_run`; `replace`: as in `unpack`. Each artifact is written into a folder of
    STORE/work and checked against its manifest and its record before the store has it. An interruption leaves whole
    artifacts, and the same call continues. Raises a `StoreError` that names the file at the address if it is damaged
    or missing.
    """
    source = RemoteFolder(address)
    name = f"runs/{source.find_run(which)}{ENDING}"
    data = source.read(name, LONGEST_INDEX + LONGEST_LINEAGE)
    with archive.open_bytes(f"{source.shown}/{name}", data) as reader:
        index, unique = read_index(reader)
        with staging_folder(store, unique, index.recipe, on_wait) as (staged, keep_folders):
            run, records = read_lineage(store, reader, index, staged, lambda count: None)
            check_end(reader)
            files_of = objects_of(reader, index, records)
            wanted = [record for record in records if record.key not in index.without]
            for record in records:
                settled(store, record, replace)  # before anything changes
            damaged = clear_damaged(store, wanted)
            absent = {r.digest for r in wanted if is_absent(store, r, replace)}
            total = sum(member.size for digest in absent for member in files_of[digest])
            check_room(store, total)
            done = 0

            def moved(count: int) -> None:
                nonlocal done
                done += count
                report(done, max(total, done))

            def fetch(record: Record) -> None:
                get_object(source, staged, record, files_of[record.digest], moved)

            store.prepare()
            keep_folders()
            return file(store, run, records, index, staged, replace, on_wait, damaged, fetch)


def is_absent(store: Store, record: Record, replace: bool) -> bool:
    """Whether the store needs the record's object from elsewhere."""
    return settled(store, record, replace) is not None and not (store.objects / record.digest).exists()


def get_object(
    source: RemoteFolder, staged: Path, record: Record, members: list[Member], moved: Callable[[int], None]
) -> None:
    """Writes an object below `staged` and checks it."""

    def wrong(what: str) -> StoreError:
        return source.fault("", f"{what}; remove the folder objects/{record.digest} there and push the run again")

    files.empty_folder(staged / "objects" / record.digest)
    for member in members:
        write_member(wrong, member, staged, source.pieces(member.name, member.size), moved)
    check_object(wrong, staged, record, members)
