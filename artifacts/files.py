"""Reads, hashes and writes files; a crash leaves the old file or the new one, never a partial one."""

import errno
import hashlib
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from artifacts.errors import StoreError
from artifacts.names import LONGEST, one_line

THREADS = min(8, os.cpu_count() or 1)
"""For hashing and syncing, which both release Python's global interpreter lock."""

NO_SPACE = {errno.ENOSPC: "no space left", errno.EDQUOT: "quota used up", errno.EFBIG: "file size limit reached"}
REFUSED = {errno.EACCES: "permission denied", errno.EPERM: "permission denied", errno.EROFS: "read-only file system"}

FULL_BYTES = 1 << 20
"""A disk with less free space counts as full: it explains any failure."""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: Path, data: bytes) -> None:
    """Replaces the whole file; it is on disk when this returns. Its mode follows the umask."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flushes a file's bytes, or a folder's names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_path(path: Path) -> None:
    """Raises `StoreError` for a path that is not UTF-8, which Parquet, JSON and Java require."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{one_line(str(path), LONGEST)}: the path is not UTF-8; use another path to it, such as a link"
        ) from None


def empty_folder(folder: Path) -> Path:
    """Creates an empty folder; removes its earlier content."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def list_paths(folder: Path, ending: str) -> list[Path]:
    """Returns a folder's paths that end with `ending`, sorted; none if it is missing. `StoreError` if unreadable."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(ending) and path.name[0] != ".")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder}: {str(error.strerror).lower()}") from None


@contextmanager
def provisional(*folders: Path) -> Iterator[ExitStack]:
    """Creates the folders. At the end it removes the folders that it created, if they are empty; `pop_all` of the
    yielded stack keeps them. Raises `StoreError` if a folder cannot be created.
    """
    missing = [one for folder in folders for one in (folder, *folder.parents) if not one.exists()]
    with ExitStack() as removals:
        for folder in reversed(missing):
            removals.callback(_remove_if_empty, folder)
        try:
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{error.filename}: {str(error.strerror).lower()}") from error
        yield removals


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Raises a `StoreError` that names `folder` if any cause of an error is a full or read-only disk."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        line = _storage_line(error, folder)
        if line is None:
            raise
        raise StoreError(line) from error


def _storage_line(error: BaseException | None, folder: Path) -> str | None:
    free = shutil.disk_usage(folder).free
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        what = NO_SPACE.get(number or 0)
        # Libraries keep only the system's message (safetensors, a child process), or lose it too (NumPy, torch.save).
        if os.strerror(errno.ENOSPC) in str(error) or (isinstance(error, OSError | RuntimeError) and free < FULL_BYTES):
            what = NO_SPACE[errno.ENOSPC]
        if what is not None:
            return f"{folder}: {what} ({free / 2**30:.2f} GiB free)"
        name = getattr(error, "filename", None)
        if number in REFUSED and name is not None and Path(os.fsdecode(name)).is_relative_to(folder):
            return f"{os.fsdecode(name)}: {REFUSED[number]}"
        error = error.__cause__ or error.__context__
    return None
