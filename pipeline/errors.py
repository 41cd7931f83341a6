"""The one exception for what a user can fix."""


class InputError(Exception):
    """Something given by the user is wrong. The message is one line that names file and line, or field.

    The command line prints the message alone and exits with code 2.
    """
