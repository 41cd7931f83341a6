"""The store's one exception for what a user can fix."""

from artifacts.names import escaped


class StoreError(Exception):
    """Something about the store or a source is wrong. The message is one line that names the file or folder; what
    breaks the line, as a path may, is escaped.

    The command line prints the message alone and exits with code 2.
    """

    def __str__(self) -> str:
        return escaped(super().__str__())


class Damaged(StoreError):
    """An artifact that was to be read is not as it was written. It is set aside; another attempt builds it again."""
