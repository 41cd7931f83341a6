"""The version of a stage's code: hashes of the syntax trees that it is made of."""

from collections.abc import Callable
from typing import Any


def code_version(function: Callable[..., Any], roots: tuple[str, ...] = ("pipeline",)) -> dict[str, str]:
    """File (relative, such as `pipeline/mine.py`) -> hash, for the function's module and all that it imports of `roots`."""
    raise NotImplementedError
