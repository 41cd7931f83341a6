"""The store's exceptions for faults that a user can fix."""

from artifacts.names import escaped


class StoreError(Exception):
    """A fault of the store or of a source. The message is one line that names the file or folder; characters that
    would break the line are escaped.

    The command line prints the message alone and exits with code 2.
    """

    def __str__(self) -> str:
        return escaped(super().__str__())


class Damaged(StoreError):
    """An input artifact differs from what was written. It is set aside; another attempt builds it again."""
