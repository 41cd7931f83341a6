"""Reading, hashing and writing files so that a crash leaves the old or the new, never a half."""

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
"""For hashing and syncing, which both leave the interpreter's lock."""

NO_SPACE = {errno.ENOSPC: "no space left", errno.EDQUOT: "quota used up", errno.EFBIG: "file size limit reached"}
REFUSED = {errno.EACCES: "permission denied", errno.EPERM: "permission denied", errno.EROFS: "read-only file system"}

FULL_BYTES = 1 << 20
"""A disk with less free space is full: what fails then fails for that."""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(path: Path, data: bytes) -> None:
    """Replaces the file as a whole, on disk when this returns. Its mode follows the umask."""
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
    """Asks the kernel to put a file's bytes, or a folder's names, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_path(path: Path) -> None:
    """Raises `StoreError` for a path that is not UTF-8: Parquet, JSON and Java take no other."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{one_line(str(path), LONGEST)}: the path is not UTF-8; give one that is, such as a link"
        ) from None


def empty(folder: Path) -> Path:
    """Makes the folder, without what was in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def listed(folder: Path, ending: str) -> list[Path]:
    """The paths in a folder that end so, sorted; none where it is not there. `StoreError` where it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(ending) and path.name[0] != ".")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder}: {str(error.strerror).lower()}") from None


@contextmanager
def provisional(*folders: Path) -> Iterator[ExitStack]:
    """Makes the folders. At the end those that were not there are gone again, if they are empty; `pop_all` of what is
    given keeps them. Raises `StoreError` where they cannot be made.
    """
    absent = [one for folder in folders for one in (folder, *folder.parents) if not one.exists()]
    with ExitStack() as undone:
        for folder in reversed(absent):
            undone.callback(_remove_if_empty, folder)
        try:
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{error.filename}: {str(error.strerror).lower()}") from error
        yield undone


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turns a full or closed disk, however deep in the chain of causes, into a `StoreError` that names `folder`."""
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
        # Libraries keep only the system's words (safetensors, a child process), or not even those (NumPy, torch.save).
        if os.strerror(errno.ENOSPC) in str(error) or (isinstance(error, OSError | RuntimeError) and free < FULL_BYTES):
            what = NO_SPACE[errno.ENOSPC]
        if what is not None:
            return f"{folder}: {what} ({free / 2**30:.2f} GiB free)"
        name = getattr(error, "filename", None)
        if number in REFUSED and name is not None and Path(os.fsdecode(name)).is_relative_to(folder):
            return f"{os.fsdecode(name)}: {REFUSED[number]}"
        error = error.__cause__ or error.__context__
    return None
