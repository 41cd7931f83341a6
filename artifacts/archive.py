"""A tar of plain files, packed by zstd: written with each file's hash checked, read with nothing taken on trust.

Written by tarfile, so that `tar --zstd -xf` opens it; equal files give equal bytes. Read header by header: tarfile's
own reader would follow extended headers of any size before its caller sees them.
"""

import hashlib
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

from artifacts import files, names
from artifacts.errors import StoreError

CHUNK = 1 << 20
LONGEST_NAME = names.LONGEST + 256
"""Bytes of a member's name, with what a pack puts before that of an artifact's file."""

Moved = Callable[[int], None]
"""Told how many bytes more were read or written."""


class Member(NamedTuple):
    """A file of the archive."""

    name: str
    size: int
    sha256: str


def write(path: Path, given: Iterable[tuple[Member, Path | bytes]], moved: Moved) -> None:
    """Writes the members in their order. Raises `StoreError` for a file that is not what its member says."""
    import pyarrow as pa

    packed = pa.CompressedOutputStream(str(path), "zstd")
    with packed, tarfile.open(mode="w|", fileobj=packed, format=tarfile.GNU_FORMAT) as tar:
        for member, source in given:
            info = tarfile.TarInfo(member.name)
            info.size = member.size
            with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
                hashing = _Hashing(file, moved)
                try:
                    tar.addfile(info, hashing)  # type: ignore[arg-type]
                except OSError as error:
                    if error.errno is None:  # tarfile's own, for a file that ends early
                        raise StoreError(f"{source!s}: shorter than {member.size} bytes") from None
                    raise
            if hashing.sha256.hexdigest() != member.sha256:
                raise StoreError(f"{source!s}: was changed")


class _Hashing:
    """A file that hashes what is read of it."""

    def __init__(self, file: IO[bytes], moved: Moved) -> None:
        self.file, self.moved, self.sha256 = file, moved, hashlib.sha256()

    def read(self, count: int) -> bytes:
        data = self.file.read(count)
        self.sha256.update(data)
        self.moved(len(data))
        return data


@contextmanager
def opened(path: Path) -> Iterator["Reader"]:
    """Raises `StoreError` where there is no such file, or one that zstd did not write."""
    import pyarrow as pa

    files.check_path(path)
    if path.is_fifo():
        raise StoreError(f"{path}: not a file")
    try:
        with path.open("rb"):  # pyarrow's message on a folder or a missing file names neither well
            stream = pa.CompressedInputStream(str(path), "zstd")
    except OSError as error:
        raise StoreError(f"{path}: {str(error.strerror or error).lower()}") from None
    with stream:
        yield Reader(path, stream)


class Reader:
    """Reads an archive from front to back. Whatever is wrong with it is a `StoreError` that names the file."""

    def __init__(self, path: Path, stream: Any) -> None:
        self.path, self.stream = path, stream

    def wrong(self, what: str) -> StoreError:
        return StoreError(f"{self.path}: {names.one_line(what, names.LONGEST)}")

    def header(self) -> tuple[str, int] | None:
        """Name and size of the next member, which is a plain file; None at the archive's end."""
        block = self._take(tarfile.BLOCKSIZE)
        if not any(block):
            rest = self._read(2 * tarfile.RECORDSIZE)
            if any(rest) or len(rest) > tarfile.RECORDSIZE:
                raise self.wrong("more follows its end")
            return None
        info = self._parse(block)
        if info.type == tarfile.GNUTYPE_LONGNAME:
            if not 0 < info.size <= LONGEST_NAME:
                raise self.wrong(f"a name of {info.size} bytes")
            name = b"".join(self.content(info.size)).rstrip(b"\0").decode("utf-8", "replace")
            info = self._parse(self._take(tarfile.BLOCKSIZE))
            info.name = name
        if info.type != tarfile.REGTYPE:
            raise self.wrong(f"{info.name} is no plain file")
        return info.name, info.size

    def content(self, size: int) -> Iterator[bytes]:
        """What follows a header, in pieces."""
        left = size
        while left:
            piece = self._take(min(left, CHUNK))
            left -= len(piece)
            yield piece
        if any(self._take(-size % tarfile.BLOCKSIZE)):
            raise self.wrong("was changed between two of its files")

    def _parse(self, block: bytes) -> tarfile.TarInfo:
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.TarError, ValueError) as error:
            raise self.wrong(f"not a tar archive ({error})") from None
        if info.size < 0:
            raise self.wrong(f"{info.name} has {info.size} bytes")
        return info

    def _take(self, count: int) -> bytes:
        data = self._read(count)
        if len(data) < count:
            raise self.wrong("ends early")
        return data

    def _read(self, count: int) -> bytes:
        """So many bytes, or all that are left."""
        pieces = []
        try:
            while count and (piece := self.stream.read(count)):
                pieces.append(piece)
                count -= len(piece)
        except (OSError, ValueError) as error:
            raise self.wrong(f"cannot be unpacked ({str(error).lower()})") from None
        return b"".join(pieces)
