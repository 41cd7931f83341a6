"""Whether a text of a user's file can be written, shown and sent."""

import re

from pipeline.errors import InputError

HALF = re.compile("[\ud800-\udfff]")
"""JSON can hold it, UTF-8 cannot."""


def check_text(place: str, text: str) -> None:
    """Raises InputError for half of a surrogate pair. `place`: the file, the line and what the text is."""
    if found := HALF.search(text):
        raise InputError(f"{place} holds half of a surrogate pair at character {found.start() + 1}; remove it")
