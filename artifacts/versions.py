"""Versions of installed distributions, read from their metadata: nothing is imported."""

import platform
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from artifacts.errors import StoreError

RECORDED = (
    *("cocondenser", "torch", "transformers", "tokenizers", "pyserini", "faiss-cpu", "faiss-gpu", "prefect"),
    *("numpy", "pyarrow", "ir-measures"),
)

BUILDS = {"faiss": ("faiss-cpu", "faiss-gpu")}
"""Distributions of which one is installed, by the library that they are."""


@cache
def recorded() -> dict[str, str]:
    """Python's version and those of the installed among `RECORDED`: lineage, never part of a key."""
    found = {name: _version(name) for name in RECORDED}
    return {"python": platform.python_version()} | {name: v for name, v in found.items() if v is not None}


def of(libraries: Iterable[str]) -> dict[str, str]:
    """Version of each of `libraries`, for `make_key`. Raises `StoreError` if one is not installed."""
    found = {name: next(filter(None, map(_version, BUILDS.get(name, (name,)))), None) for name in libraries}
    for name, v in found.items():
        if v is None:
            raise StoreError(f"{name} is not installed: pip install {BUILDS.get(name, (name,))[0]}")
    return {name: v for name, v in found.items() if v is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
