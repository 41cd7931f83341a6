"""Versions of installed distributions, read from their metadata without imports."""

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
"""Library -> alternative distributions, of which one is installed."""


@cache
def recorded_versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed `RECORDED` distributions: for lineage, never for a key."""
    installed = {name: _version(name) for name in RECORDED}
    return {"python": platform.python_version()} | {name: v for name, v in installed.items() if v is not None}


def library_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Returns the version of each of `libraries`, for `make_key`. Raises `StoreError` if one is not installed."""
    installed = {name: next(filter(None, map(_version, BUILDS.get(name, (name,)))), None) for name in libraries}
    for name, v in installed.items():
        if v is None:
            raise StoreError(f"{name} is not installed: pip install {BUILDS.get(name, (name,))[0]}")
    return {name: v for name, v in installed.items() if v is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
