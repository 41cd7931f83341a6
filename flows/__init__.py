"""The command line and its flows. Nothing in the current folder stands in for this code or what it imports."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def current_folder_last(entries: Sequence[str], here: str, code: str) -> list[str]:
    """The entries of sys.path, the current folder `here` behind the others unless it is that of this `code`.

    `python -m` and an empty entry of PYTHONPATH put it first: a user's own tasks.py would be taken for the package.
    """
    return sorted(entries, key=lambda entry: entry in ("", ".", here) and here != code)


with suppress(FileNotFoundError):  # of a current folder that was removed
    sys.path[:] = current_folder_last(sys.path, os.getcwd(), str(Path(__file__).resolve().parents[1]))
