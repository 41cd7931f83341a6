"""The configuration of the reader `text`."""

import os
from pathlib import Path, PurePath
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.config import Config, Seed
from pipeline.data import text_files
from pipeline.data.metadata import Names

Kind = Literal["titles", "headings", "first_sentences", "crops"]


class TextConfig(Config):
    """Text, Markdown, HTML or JSONL files, plain or compressed, cut into passages at headings."""

    reader: Literal["text"]
    """Names this reader."""
    path: Path
    """A file or a folder. Files are read by their endings: .md and .markdown as Markdown, .html and .htm as HTML,
    .jsonl as a document a line, any other as plain text."""
    pattern: str = Field(min_length=1)
    """Which files of a folder, such as `**/*.txt`; in the order of their names. Hidden ones are passed over."""
    endings: tuple[str, ...]
    """Endings of the files taken among these, such as `md` or `.md`, without that of a compression; `""` takes names
    without an ending, such as README, as does such a name. The others are counted. Empty: all."""
    documents: Literal["files", "lines"]
    """What a document is in plain text files: the file, or each line."""
    id_key: str
    """Key of a JSONL document's id; empty: the file's name and the document's number."""
    title_key: str
    """Key of its title; empty: none."""
    text_key: str = Field(min_length=1)
    """Key of its text."""
    metadata: Names
    """What to keep of each document and filter by: `file`, its file's name in the folder; `folder`, the part of that
    name before the last slash; `ending`, such as `md`; keys of JSONL and of Markdown's front matter. Empty: nothing."""
    passage_words: int = Field(ge=0)
    """Sections are cut into passages of about so many words; 0: a section is a passage."""
    questions: tuple[Kind, ...]
    """What asks (`questions.make` says for which passages): documents' titles, sections' headings, sections' first
    sentences, random crops of passages, or several of these. Empty: no questions, and no field below matters."""
    heading_words: int = Field(ge=1)
    """Words, of letters, that a title or heading must have to ask."""
    sentence_words: tuple[int, int]
    """Fewest and most words of a first sentence or crop that asks."""
    crop_share: tuple[float, float]
    """Length of a crop as a share of its passage's, drawn evenly between the two."""
    remaining_words: int = Field(ge=1)
    """Words that must be left in the passages asked for, together, once the question is taken out."""
    kept_share: float = Field(ge=0, le=1)
    """Share of the training questions whose words stay in what is indexed; in dev and test none do."""
    dev_share: float = Field(ge=0, le=1)
    """Share of the documents that ask dev questions."""
    test_share: float = Field(ge=0, le=1)
    """Share of the documents that ask test questions."""
    seed: Seed
    """Of splits, crops and what is kept."""

    @field_validator("endings")
    @classmethod
    def _of_files(cls, endings: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(ending_of, endings))

    @field_validator("pattern")
    @classmethod
    def _inside(cls, pattern: str) -> str:
        # What lies outside would be read, but not enter the key.
        if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts:
            raise ValueError("must stay inside the folder")
        try:
            list(Path(os.devnull).glob(pattern))  # nothing to look through: only what cannot be a pattern fails
        except (ValueError, IndexError, NotImplementedError) as error:
            raise ValueError(f"{pattern!r} is no pattern of paths ({error})") from error
        return pattern

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if len(set(self.questions)) < len(self.questions):
            raise ValueError("questions names a kind twice")
        if not 1 <= self.sentence_words[0] <= self.sentence_words[1]:
            raise ValueError("sentence_words must be at least 1, and ascend")
        if not 0 < self.crop_share[0] <= self.crop_share[1] < 1:
            raise ValueError("crop_share must lie between 0 and 1, and ascend")
        if self.dev_share + self.test_share >= 1:
            raise ValueError("dev_share and test_share leave nothing to train on")
        return self


def ending_of(written: str) -> str:
    """What `ingest.endings` means: `.rst`, `*.rst` and `RST` are `rst`. Raises ValueError for what no file ends in."""
    ending = written.strip().removeprefix("*").removeprefix(".").lower()
    if _ending(Path(f"a.{ending}")) != ending:
        raise ValueError(f"{written!r} is no file's ending: name the last one, before a compression's (md of a.md.gz)")
    return ending


def _ending(path: Path) -> str:
    """As `ingest.endings` names it: of a name without a dot all of it, such as makefile."""
    return text_files.plain_name(path).rpartition(".")[2].lower()
