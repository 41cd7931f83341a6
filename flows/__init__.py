"""The command line and its flows. No module of the current folder replaces what they import."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def current_folder_last(entries: Sequence[str], here: str, code: str) -> list[str]:
    """The entries of sys.path, the current folder `here` behind the others and this `code`, unless it is the same.

    `python -m` and an empty entry of PYTHONPATH put it first: a user's own tasks.py would be taken for the package. An
    editable install adds no entry of its own, and is looked at after all entries.
    """
    if here == code:
        return list(entries)
    others = [entry for entry in entries if entry not in ("", ".", here)]
    current = [entry for entry in entries if entry not in others]
    return [*others, *(one for one in [code] if current and one not in others), *current]


with suppress(FileNotFoundError):  # of a current folder that was removed
    sys.path[:] = current_folder_last(sys.path, os.getcwd(), str(Path(__file__).resolve().parents[1]))
