"""A file of lines to which programs append: each line is one write, so that a line is there as a whole or not at all.

The file is readable by its owner only.
"""

import os
from pathlib import Path
from types import TracebackType

from pipeline.errors import InputError


class LineLog:
    """An open file. `alone`: no other process appends, and each line is on disk when `append` returns; a last line
    without its end, of a machine that failed, is then removed.

    Raises InputError if the file cannot be opened.
    """

    def __init__(self, path: Path, alone: bool = False) -> None:
        self.path = path
        self.alone = alone
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"{path}: {str(error.strerror).lower()}") from None
        if alone:
            content = path.read_bytes()
            os.ftruncate(self.descriptor, content.rfind(b"\n") + 1)

    def append(self, line: str) -> None:
        """Appends the line and its end. Raises OSError, such as that of a full disk."""
        content = line.encode() + b"\n"
        before = os.fstat(self.descriptor).st_size
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
