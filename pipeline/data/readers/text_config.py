"""The configuration of the reader `text`."""

import os
from pathlib import Path, PurePath
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.config import Seed
from pipeline.data.metadata import Names
from pipeline.data.readers.reader_config import ReaderConfig
from pipeline.data.text import text_files

Kind = Literal["titles", "headings", "first_sentences", "crops"]


class TextConfig(ReaderConfig):
    """Files of text, Markdown, HTML and further formats, plain or compressed, cut into passages at headings."""

    reader: Literal["text"]
    """Selects this reader."""
    path: Path
    """A file or a folder. The ending selects the parser: .md and .markdown Markdown; .html, .htm and .xhtml HTML; .rst
    reStructuredText; .adoc and .asciidoc AsciiDoc; .pdf, .docx, .pptx and .epub with the extra `documents`; .jsonl one
    document per line; any other plain text."""
    pattern: str = Field(min_length=1)
    """Files of a folder that are read, such as `**/*.txt`, sorted by name. Hidden files are skipped."""
    endings: tuple[str, ...]
    """Endings of the files that are read, such as `md` or `.md`, without that of a compression. `""` selects names
    without an ending; such a name, as README, can be listed too. Other files are counted. Empty: all."""
    max_file_mb: int = Field(default=100, ge=1)
    """Largest file that is one document, in MB without compression; of Word, PowerPoint and EPUB the size of all parts
    when unpacked, with pictures. Larger ones are counted and left out."""
    documents: Literal["files", "lines"]
    """Documents of plain text files: the whole file, or each line."""
    id_key: str
    """Key of a JSONL document's id; empty: the file's name and the document's number."""
    title_key: str
    """Key of its title; empty: none."""
    text_key: str = Field(min_length=1)
    """Key of its text."""
    metadata: Names
    """Fields to keep of each document and filter by: `file`, its file's name in the folder; `folder`, the part of that
    name before the last slash; `ending`, such as `md`; keys of JSONL and of Markdown's front matter. Empty: nothing."""
    passage_words: int | None = Field(ge=1)
    """Sections are cut into passages of about this many words, at most 1.2 times as many; null: a section is a passage.
    Signs count, and a long word counts several times, as models read them (docs/languages.md)."""
    judgements: Literal["passages", "documents"] = "passages"
    """What the judgements of generated questions name: the passages that answer, or the whole document. A document's
    score is then that of its best passage."""
    questions: tuple[Kind, ...]
    """Texts that become questions (answers: see `generate_questions`): documents' titles, sections' headings,
    sections' first sentences, random crops of passages, or several of these. Empty: no questions; the fields below are
    unused."""
    heading_words: int = Field(ge=1)
    """Minimum words, of letters, in a title or heading that becomes a question."""
    sentence_words: tuple[int, int]
    """Minimum and maximum words of a first sentence or crop that becomes a question."""
    crop_share: tuple[float, float]
    """Length of a crop as a share of its passage, drawn uniformly between the two."""
    remaining_words: int = Field(ge=1)
    """Minimum words in all answering passages together, without the question."""
    kept_share: float = Field(ge=0, le=1)
    """Share of the training questions whose words stay in the indexed text; in dev and test all are removed."""
    dev_share: float = Field(ge=0, le=1)
    """Share of the documents whose questions are dev questions."""
    test_share: float = Field(ge=0, le=1)
    """Share of the documents whose questions are test questions."""
    seed: Seed
    """Random seed for splits, crops and `kept_share`."""

    @field_validator("endings")
    @classmethod
    def _of_files(cls, endings: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(ending_of, endings))

    @field_validator("pattern")
    @classmethod
    def _inside(cls, pattern: str) -> str:
        # Files outside would be read, but would not enter the key.
        if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts:
            raise ValueError("must stay inside the folder")
        try:
            list(Path(os.devnull).glob(pattern))  # searches nothing: only an invalid pattern fails
        except (ValueError, IndexError, NotImplementedError) as error:
            raise ValueError(f"{pattern!r} is not a pattern of paths ({error})") from error
        return pattern

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if len(set(self.questions)) < len(self.questions):
            raise ValueError("questions names a kind twice")
        if self.passage_overlap and "crops" in self.questions:
            raise ValueError("passage_overlap must be 0 for crops: the next passage would repeat a question's words")
        if not 1 <= self.sentence_words[0] <= self.sentence_words[1]:
            raise ValueError("sentence_words must be at least 1, and ascending")
        if not 0 < self.crop_share[0] <= self.crop_share[1] < 1:
            raise ValueError("crop_share must be between 0 and 1, and ascending")
        if self.dev_share + self.test_share >= 1:
            raise ValueError("dev_share and test_share leave nothing to train on")
        return self


def ending_of(written: str) -> str:
    """Returns an ending in normal form: `.rst`, `*.rst` and `RST` give `rst`. Raises ValueError for an invalid one."""
    ending = written.strip().removeprefix("*").removeprefix(".").lower()
    if _ending(Path(f"a.{ending}")) != ending:
        raise ValueError(
            f"{written!r} is not a file's ending: write the last one, before a compression's (md of a.md.gz)"
        )
    return ending


def _ending(path: Path) -> str:
    """Returns the ending as in `ingest.endings`; of a name without a dot the whole name, such as makefile."""
    return text_files.plain_name(path).rpartition(".")[2].lower()
