"""The folder of pushed runs at an fsspec address, such as s3://bucket/folder, or a path.

    objects/DIGEST/...       the artifacts, as in a store; one counts only with its manifest, which is written last
    runs/RUN.tar.zst         for each run, the start of its pack (packs/pack.py): all but the objects

Any fault raises a `StoreError` that names the address. Credentials are those that fsspec's packages find.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from artifacts import names, runs
from artifacts.errors import StoreError
from artifacts.outside import check_outside
from artifacts.packs.address import user_in, without_secrets
from artifacts.packs.archive import CHUNK
from artifacts.packs.pack import ENDING

BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}
"""Protocols of stores without folders. There, a folder to create would be a bucket, by a misspelt name."""
RUN_FILE = re.compile(r"(\d{8}T\d{6}\.\d{6}Z-.+)" + re.escape(ENDING))
PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial")
"""The name of a file that is being written."""
ABANDONED = timedelta(hours=1)
"""A file that is being written was changed more recently than this."""


class RemoteFolder:
    """Reads and writes files below an address; `name` arguments are relative to it, with slashes."""

    def __init__(self, address: str) -> None:
        import fsspec

        self._address = address
        shown = without_secrets(address, address)
        self.shown = shown.rstrip("/")
        """The address without a user's name and password, and without a signature."""
        if "/" in user_in(address):
            raise StoreError(f"{shown}: '/' in a user's name or password must be written as %2F")
        with self._faults(""):
            self.system, root = fsspec.url_to_fs(address)
            self.system.invalidate_cache()  # another process may have written since
        self.root = root.rstrip("/")
        if not (address and self.root):
            raise StoreError(f"{shown!r}: an address must name a folder or a bucket")
        with self._faults(""):
            if self.system.isfile(self.root):
                raise self.fault("", "a file, not a folder")

    def check_outside_stores(self) -> None:
        """Raises `StoreError` for an address within a store on this machine."""
        if "file" in _protocols(self.system):
            check_outside(Path(self.root), self.shown)

    def fault(self, name: str, what: str) -> StoreError:
        return StoreError(f"{self.shown}{'/' if name else ''}{names.one_line(name, names.LONGEST)}: {what}")

    def runs(self) -> list[str]:
        """Returns the pushed runs as TIMESTAMP-RECIPE, newest first. Raises `StoreError` if there is none."""
        found = [match[1] for name in self.sizes("runs") if (match := RUN_FILE.fullmatch(name))]
        if not found:
            raise self.fault("", "has no run; `cocondenser artifacts push` sends one")
        return sorted(found, reverse=True)

    def find_run(self, which: str | None) -> str:
        """Returns the run `which` (see `runs`), the newest one of a recipe, or the newest of all (None)."""
        everything = self.runs()
        for run in everything:
            if which is None or which == run or runs.in_file_name(which) == recipe_in(run):
                return run
        known = ", ".join(sorted({recipe_in(run) for run in everything}))
        raise self.fault("", f"has no run {which!r}, only runs of {known}; `cocondenser artifacts pushed` lists them")

    def has(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        with self._faults(name):
            return bool(self.system.exists(f"{self.root}/{name}"))

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns {name below the folder: bytes} of all its files; empty if there is no such folder."""
        path = f"{self.root}/{folder}"
        with self._faults(folder):
            try:
                found = self.system.find(path, detail=True)
            except FileNotFoundError:
                return {}
        return {name.removeprefix(path).lstrip("/"): info["size"] for name, info in found.items()}

    def remove_abandoned(self, name: str) -> None:
        """Removes a file that a killed push has not completed. Does nothing if another push may be writing it."""
        path = f"{self.root}/{name}"
        with suppress(Exception):  # a file of no use does no harm, and not every address knows times
            if datetime.now(UTC) - self.system.modified(path) > ABANDONED:
                self.system.rm_file(path)

    def read(self, name: str, most: int) -> bytes:
        """Returns a file's bytes. Raises `StoreError` if there are more than `most`."""
        with self._faults(name), self.system.open(f"{self.root}/{name}", "rb") as file:
            data = bytes(file.read(most + 1))
        if len(data) > most:
            raise self.fault(name, f"has more than {most:,} bytes")
        return data

    def pieces(self, name: str, size: int) -> Iterator[bytes]:
        """Yields a file's bytes in pieces. Raises `StoreError` if it has not `size` bytes."""
        with self._faults(name):
            file = self.system.open(f"{self.root}/{name}", "rb")
        left = size
        with closing(file):
            while True:
                with self._faults(name):
                    piece = bytes(file.read(min(left, CHUNK) or 1))
                if len(piece) > left or (left and not piece):
                    raise self.fault(name, f"has {'more' if piece else 'fewer'} than {size:,} bytes")
                if not piece:
                    return
                left -= len(piece)
                yield piece

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Writes a file; if that fails or `pieces` raises, there is the earlier file or none, never half of one."""
        path = f"{self.root}/{name}"
        if {*_protocols(self.system)} & BUCKETS:
            self._upload(name, path, pieces)
        else:
            self._write_and_rename(name, path, pieces)

    def _upload(self, name: str, path: str, pieces: Iterable[bytes]) -> None:
        with self._faults(name):
            file = self.system.open(path, "wb", autocommit=False)
        try:
            self._fill(name, file, pieces)
            with self._faults(name):
                file.commit()
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                file.closed = True  # or its finaliser sends the rest, which completes an upload to Azure
                file.discard()
            raise
        finally:
            self.system.transaction.files.clear()  # fsspec lists files that are to be committed, with their bytes

    def _write_and_rename(self, name: str, path: str, pieces: Iterable[bytes]) -> None:
        folder = path.rpartition("/")[0]
        partial = f"{folder}/.{uuid4().hex}.partial"  # of this push alone: another one may send the same file
        with self._faults(name):
            self.system.makedirs(folder, exist_ok=True)
            file = self.system.open(partial, "wb")
        try:
            self._fill(name, file, pieces)
            with self._faults(name):
                self.system.mv(partial, path)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                file.close()
            with suppress(Exception):
                self.system.rm_file(partial)
            raise

    def _fill(self, name: str, file: Any, pieces: Iterable[bytes]) -> None:
        """Writes the pieces and closes the file. An error of `pieces` is none of the address."""
        for piece in pieces:
            with self._faults(name):
                file.write(piece)
        with self._faults(name):
            file.close()

    @contextmanager
    def _faults(self, name: str) -> Iterator[None]:
        """Turns any error of fsspec and its packages into one line: they raise exceptions of many kinds."""
        try:
            yield
        except StoreError:
            raise
        except FileNotFoundError as error:
            raise self.fault(name, "no such file, folder or bucket") from error
        except NotImplementedError as error:
            raise self.fault(
                name, f"addresses of this kind ({_protocols(self.system)[0]}) do not allow this"
            ) from error
        except Exception as error:
            what = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self.fault(name, names.one_line(without_secrets(str(what), self._address))) from error


def recipe_in(run: str) -> str:
    """Returns the recipe in a run's name, in characters that are valid in file names."""
    return run.partition("-")[2]


def _protocols(system: Any) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)
