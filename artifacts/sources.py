"""Content digests of source files and folders, with a side cache so that a second look is instant."""

from collections.abc import Mapping
from pathlib import Path


def digests(sources: Mapping[str, Path], cache: Path) -> dict[str, str]:
    """Name -> SHA-256 of the content of each file or folder. `cache`: the JSON file of the side cache.

    Raises `StoreError` if one is missing or cannot be read.
    """
    raise NotImplementedError
