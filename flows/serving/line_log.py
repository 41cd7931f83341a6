"""A file of lines to which programs append: each line is one write, so that a line is there as a whole or not at all.

The file is readable by its owner only.
"""

import json
import os
from pathlib import Path
from types import TracebackType

from pipeline.errors import InputError


class LineLog:
    """An open file. `alone`: no other process appends, and each line is on disk when `append` returns; an incomplete
    last line, of a machine that failed, is then removed.

    Raises InputError if the file cannot be opened; `alone` also if it is no UTF-8 text with LF.
    """

    def __init__(self, path: Path, alone: bool = False) -> None:
        self.path = path
        self.alone = alone
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"{path}: {str(error.strerror).lower()}") from None
        if alone:
            try:
                self._remove_incomplete(path.read_bytes())
            except BaseException:
                os.close(self.descriptor)
                raise

    def _remove_incomplete(self, content: bytes) -> None:
        end = content.rfind(b"\n") + 1
        try:
            content[:end].decode()
        except UnicodeDecodeError:
            raise InputError(f"{self.path}: is not UTF-8; save it as UTF-8") from None
        if b"\r" in content[end:]:
            raise InputError(f"{self.path}: its lines end with CR only; save it with LF")
        if not _is_json(content[end:]):
            os.ftruncate(self.descriptor, end)

    def append(self, line: str) -> None:
        """Appends the line and its end. Raises OSError, such as that of a full disk."""
        content = line.encode() + b"\n"
        before = os.fstat(self.descriptor).st_size
        if before and os.pread(self.descriptor, 1, before - 1) != b"\n":  # of an editor, or of a disk that was full
            content = b"\n" + content
        try:
            written = os.write(self.descriptor, content)
            if written < len(content):
                os.write(self.descriptor, content[written:])  # raises the reason
        except OSError:
            if self.alone:
                os.ftruncate(self.descriptor, before)
            raise
        if self.alone:
            os.fsync(self.descriptor)

    def __enter__(self) -> "LineLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
