"""Plain text or JSONL without questions: a collection for pre-training, or to search."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Literal
from urllib.parse import quote

from pydantic import Field, field_validator

from pipeline import files
from pipeline.collection import Passage, Source
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.readers.cut import cut
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
    """Key of a JSONL document's id; empty: the file's name and the document's number."""
    title_key: str
    """Key of its title; empty: none. A text file's title is its name without the ending."""
    text_key: str = Field(min_length=1)
    """Key of its text."""
    passage_words: int = Field(ge=0)
    """Documents are cut into passages of about so many words; 0: a document is a passage."""

    @field_validator("pattern")
    @classmethod
    def _inside(cls, pattern: str) -> str:
        # What lies outside would be read, but not enter the key.
        if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts:
            raise ValueError("must stay inside the folder")
        return pattern


def missing(config: TextConfig) -> list[str]:
    """Absent paths."""
    return files.missing([config.path], {})


def sources(config: TextConfig) -> dict[str, Path]:
    """A single file once more, under its name: ids, titles and how it is read come from the name."""
    return {f"path/{config.path.name}": config.path} if config.path.is_file() else {}


def read(config: TextConfig, progress: Progress) -> Source:
    """The documents' passages, in the order of file names and lines. Empty files are passed over and counted.

    A document's id is the file's name in the folder, with the document's number where lines are documents; its i-th
    passage is `ID#i`. Memory: one document.
    """
    if config.path.is_dir():
        found = {path.relative_to(config.path).as_posix(): path for path in config.path.glob(config.pattern)}
        paths = {name: path for name, path in sorted(found.items()) if path.is_file()}
        if not paths:
            raise InputError(f"{config.path}: no file matches ingest.pattern '{config.pattern}'")
        full = {name: path for name, path in paths.items() if path.stat().st_size}
    else:
        paths = full = {config.path.name: config.path}
    counts = Counter(files=len(full), empty_files=len(paths) - len(full))
    return Source(passages=lambda: _passages(full, config), counts=counts)


def _passages(paths: dict[str, Path], config: TextConfig) -> Iterator[tuple[str, Passage]]:
    for name, path in paths.items():
        for place, document, title, text in _documents(name, path, config):
            for i, piece in enumerate(cut(text, config.passage_words) or [""]):
                yield place, Passage(f"{document}#{i}", document, title, piece)


def _documents(name: str, path: Path, config: TextConfig) -> Iterator[tuple[str, str, str, str]]:
    """(place, document id, title, text)."""
    name = re.sub(r"\s", lambda space: quote(space[0]), name)
    plain = files.plain_name(path)
    if plain.endswith(".jsonl"):
        for number, (place, row) in enumerate(files.json_lines(path), 1):
            document = files.text_of(place, row, config.id_key) if config.id_key else f"{name}:{number}"
            title = files.text_of(place, row, config.title_key, required=False) if config.title_key else ""
            yield place, document, title, files.text_of(place, row, config.text_key)
    elif config.documents == "lines":
        for number, line in files.lines(path):
            yield f"{path}:{number}", f"{name}:{number}", "", line
    else:
        text = "\n".join(line for _, line in files.lines(path, blank=True))
        yield str(path), name, plain.rsplit(".", 1)[0], text
