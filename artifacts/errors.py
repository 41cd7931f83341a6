"""The store's one exception for what a user can fix."""


class StoreError(Exception):
    """Something about the store or a source is wrong. The message is one line that names the file or folder.

    The command line prints the message alone and exits with code 2.
    """


class Damaged(StoreError):
    """An artifact that was to be read is not as it was written. It is set aside; another attempt builds it again."""
