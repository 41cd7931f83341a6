"""The store's one exception for what a user can mend."""


class StoreError(Exception):
    """Something about the store or a source is wrong. The message is one line that names the file or folder.

    The command line prints the message alone and exits with code 2.
    """
