"""Plain text or JSONL without questions: a collection for pre-training, or to search."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.collection import Source
from pipeline.config import Config
from pipeline.work import Progress


class TextConfig(Config):
    """Text files or JSONL files, plain or compressed, cut into passages."""

    reader: Literal["text"]
    """Names this reader."""
    path: Path
    """A file or a folder. Files named .jsonl hold a document a line; any other is text."""
    pattern: str = Field(min_length=1)
    """Which files of a folder, such as `**/*.txt`; in the order of their names."""
    documents: Literal["files", "lines"]
    """What a document is in text files: the file, or each line."""
    id_key: str
    """Key of a JSONL document's id; empty: file and line number."""
    title_key: str
    """Key of its title; empty: none. A text file's title is its name without the ending."""
    text_key: str = Field(min_length=1)
    """Key of its text."""
    passage_words: int = Field(ge=0)
    """Documents are cut into passages of about so many words; 0: a document is a passage."""


def missing(config: TextConfig) -> list[str]:
    """Absent paths."""
    raise NotImplementedError


def read(config: TextConfig, progress: Progress) -> Source:
    """The documents' passages, in the order of file names and lines."""
    raise NotImplementedError
