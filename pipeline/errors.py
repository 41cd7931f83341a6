"""Errors that the command line shows as one line."""

from pipeline.notices import escaped


class InputError(Exception):
    """The user's input is wrong. The message is one line that names file and line, or field.

    Each argument is one line of the message; line breaks inside an argument, as in a path, are escaped.

    The command line prints only the message and exits with code 2.
    """

    def __str__(self) -> str:
        return "\n".join(escaped(str(line)) for line in self.args)


class JavaFailed(RuntimeError):
    """The Java process of BM25 failed or was killed. The message is one line."""


def reason(error: BaseException) -> str:
    """Returns the message of another library's error in one line, for use within an InputError."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if isinstance(error, KeyError):  # its message is the key alone
        return f"unknown value {lines[0]}"
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


LESS_MEMORY = (
    "lower machine.token_budget, set machine.gradient_cache_chunk, or for coCondenser machine.gradient_cache=always"
)
"""Advice for a training that does not fit into memory."""
