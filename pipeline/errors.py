"""The one exception for what a user can fix."""

from pipeline.notices import escaped


class InputError(Exception):
    """Something given by the user is wrong. The message is one line that names file and line, or field.

    Several messages are several arguments, a line each: what breaks a line within one, as a path may, is escaped.

    The command line prints the message alone and exits with code 2.
    """

    def __str__(self) -> str:
        return "\n".join(escaped(str(line)) for line in self.args)


LESS_MEMORY = "lower machine.token_budget, set machine.chunk_spans, or for coCondenser machine.cache=always"
"""What helps where a training does not fit."""
