"""The documentation of this Python environment, read from its docstrings: the embedded collection."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.collection import Source
from pipeline.config import Config
from pipeline.work import Progress


class PydocsConfig(Config):
    """Docstrings of the standard library and of some installed distributions. Equal versions give equal bytes."""

    reader: Literal["pydocs"]
    """Names this reader."""
    distributions: tuple[str, ...]
    """Installed distributions whose own files are read, beside the standard library."""
    docstring_characters: int = Field(ge=1)
    """Shortest docstring taken, in characters."""
    passage_words: int = Field(ge=1)
    """Words of a passage, about."""
    remaining_words: int = Field(ge=1)
    """Words that must remain in a document once its question is taken out."""
    limit: int = Field(ge=0)
    """Documents kept, chosen by a hash of their names; 0: all."""


def missing(config: PydocsConfig) -> list[str]:
    """Distributions that are not installed."""
    raise NotImplementedError


def sources(config: PydocsConfig) -> dict[str, Path]:
    """{name: path} of every file read; names hold no place of this machine."""
    raise NotImplementedError


def read(config: PydocsConfig, progress: Progress) -> Source:
    """One passage or more a docstring; the first paragraph is its question where it is prose."""
    raise NotImplementedError
