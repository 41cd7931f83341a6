"""Tar archives of plain files, compressed with zstd. Writing checks each file's hash; reading trusts nothing.

tarfile writes them, so `tar --zstd -xf` opens them; equal files give equal bytes. They are read header by header:
tarfile's own reader follows extended headers of any size before its caller sees them.
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
"""Bytes of a member's name: the name of an artifact's file with the prefix that a pack adds."""

Moved = Callable[[int], None]
"""Called with the number of bytes just read or written."""


class Member(NamedTuple):
    """A file of the archive."""

    name: str
    size: int
    sha256: str


def write_archive(path: Path, members: Iterable[tuple[Member, Path | bytes]], moved: Moved) -> None:
    """Writes the members in order. Raises `StoreError` if a file's size or hash differs from its member's."""
    import pyarrow as pa

    compressed = pa.CompressedOutputStream(str(path), "zstd")
    with compressed, tarfile.open(mode="w|", fileobj=compressed, format=tarfile.GNU_FORMAT) as tar:
        for member, source in members:
            info = tarfile.TarInfo(member.name)
            info.size = member.size
            with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
                hashing = _Hashing(file, moved)
                try:
                    tar.addfile(info, hashing)  # type: ignore[arg-type]
                except OSError as error:
                    if error.errno is None:  # raised by tarfile itself if a file ends early
                        raise StoreError(f"{source!s}: shorter than {member.size} bytes") from None
                    raise
            if hashing.sha256.hexdigest() != member.sha256:
                raise StoreError(f"{source!s}: was changed")


class _Hashing:
    """A file that hashes the bytes that are read from it."""

    def __init__(self, file: IO[bytes], moved: Moved) -> None:
        self.file, self.moved, self.sha256 = file, moved, hashlib.sha256()

    def read(self, count: int) -> bytes:
        data = self.file.read(count)
        self.sha256.update(data)
        self.moved(len(data))
        return data


@contextmanager
def open_archive(path: Path) -> Iterator["Reader"]:
    """Opens an archive for reading. Raises `StoreError` if the file is missing or is not in zstd format."""
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


@contextmanager
def open_bytes(name: str, data: bytes) -> Iterator["Reader"]:
    """Opens the bytes of an archive for reading; errors name it `name`."""
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        yield Reader(name, stream)


class Reader:
    """Reads an archive from start to end. Any fault raises a `StoreError` that names the file."""

    def __init__(self, path: Path | str, stream: Any) -> None:
        self.path, self.stream = path, stream

    def wrong(self, what: str) -> StoreError:
        return StoreError(f"{self.path}: {names.one_line(what, names.LONGEST)}")

    def header(self) -> tuple[str, int] | None:
        """Returns name and size of the next member, a plain file; None at the end of the archive."""
        block = self._take(tarfile.BLOCKSIZE)
        if not any(block):
            rest = self._read(2 * tarfile.RECORDSIZE)
            if any(rest) or len(rest) > tarfile.RECORDSIZE:
                raise self.wrong("has data after its end")
            return None
        info = self._parse(block)
        if info.type == tarfile.GNUTYPE_LONGNAME:
            if not 0 < info.size <= LONGEST_NAME:
                raise self.wrong(f"file name of {info.size} bytes")
            name = b"".join(self.content(info.size)).rstrip(b"\0").decode("utf-8", "replace")
            info = self._parse(self._take(tarfile.BLOCKSIZE))
            info.name = name
        if info.type != tarfile.REGTYPE:
            raise self.wrong(f"{info.name} is not a plain file")
        return info.name, info.size

    def content(self, size: int) -> Iterator[bytes]:
        """Yields the content after a header in pieces."""
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
        """Reads `count` bytes, or all that remain if these are fewer."""
        pieces = []
        try:
            while count and (piece := self.stream.read(count)):
                pieces.append(piece)
                count -= len(piece)
        except (OSError, ValueError) as error:
            raise self.wrong(f"cannot be decompressed ({str(error).lower()})") from None
        return b"".join(pieces)
