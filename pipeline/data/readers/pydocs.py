"""Reads the documentation of this Python environment from its docstrings: the built-in collection."""

import os
import sysconfig
from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipeline.data.collection import Judgement, Passage, Query, Source
from pipeline.data.ids import hash_id
from pipeline.data.metadata import distinct
from pipeline.data.readers.cut import cut_text
from pipeline.data.readers.docstrings import docstrings, documents
from pipeline.data.readers.reader_config import ReaderConfig
from pipeline.errors import InputError
from pipeline.notices import Examples, keep
from pipeline.runtime.work import Progress

DEMO = ("networkx", "scikit-learn")
"""Distributions that only the extra `demo` installs."""
STANDARD = "python"  # the standard library's name among the distributions
TESTS = {"test", "tests", "idle_test"}
VENDORED = {
    "_vendor",
    "_vendored",
    "vendored",
    "extern",
    "externals",
    "_external",
    "array_api_compat",
    "array_api_extra",
}
LEFT_OUT = TESTS | VENDORED | {"site-packages", "dist-packages"}
TENTHS = ("train",) * 8 + ("dev", "test")


class PydocsConfig(ReaderConfig):
    """Docstrings of the standard library and of some installed distributions. Equal versions give equal bytes."""

    reader: Literal["pydocs"]
    """Selects this reader."""
    distributions: tuple[str, ...]
    """Installed distributions whose files are read, in addition to the standard library."""
    docstring_characters: int = Field(ge=1)
    """Minimum length of a docstring, in characters."""
    passage_words: int = Field(ge=1)
    """Approximate number of words in a passage, signs included; a long word counts several times (words.pieces)."""
    remaining_words: int = Field(ge=1)
    """Minimum number of words that remain in a document without its question."""
    limit: int | None = Field(ge=1)
    """Documents kept, selected by a hash of their names. null: all."""
    metadata: Annotated[tuple[Literal["source", "module"], ...], AfterValidator(distinct)]
    """Columns to keep and filter by: `source`, the distribution (`python`: the standard library), and `module`, its
    dotted name. Empty: nothing."""


def missing(config: PydocsConfig) -> list[str]:
    """Returns a line for each distribution that is not installed."""
    return [
        _not_installed(name)
        for name in config.distributions
        if next(iter(metadata.distributions(name=name)), None) is None
    ]


def _not_installed(name: str) -> str:
    package = "'cocondenser[demo]'" if name in DEMO else name
    return f"ingest.distributions: {name} is not installed: pip install {package}"


def sources(config: PydocsConfig) -> dict[str, Path]:
    """Returns {name: path} of every file that is read, in order; the names hold no path of this machine.

    Raises InputError for a distribution that is not installed or has no record of its files.
    """
    library = Path(sysconfig.get_path("stdlib"))
    found = {f"{STANDARD}/{path}": library / path for path in _standard_files(library)}
    for name in config.distributions:
        distribution = next(iter(metadata.distributions(name=name)), None)
        if distribution is None:
            raise InputError(_not_installed(name))
        if distribution.files is None:
            raise InputError(f"ingest.distributions: {name} has no record of its files: install it by pip")
        for path in distribution.files:
            if _is_read(PurePosixPath(path)):
                found[f"{name}/{path}"] = Path(str(path.locate()))
    return dict(sorted(found.items()))


def _standard_files(library: Path) -> Iterator[PurePosixPath]:
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in LEFT_OUT and name.isidentifier()]
        for name in names:
            path = PurePosixPath((Path(folder) / name).relative_to(library).as_posix())
            if _is_read(path):
                yield path


def _is_read(path: PurePosixPath) -> bool:
    """Returns whether the file is an importable Python module that is neither a test nor vendored."""
    *folders, name = path.with_suffix("").parts
    return (
        path.suffix == ".py"
        and all(part.isidentifier() for part in (*folders, name))
        and not LEFT_OUT.intersection(folders)
        and not name.startswith("test_")
        and not name.endswith("_test")
        and name != "conftest"
        and "testing/_internal" not in str(path)
    )


def read(config: PydocsConfig, progress: Progress) -> Source:
    """Reads one or more passages per docstring; its first paragraph is the question if it is prose.

    A hash of the file's name selects the split of a question, so that no file is in two splits.
    Memory: all texts twice, whole and cut.
    """
    counts: Counter[str] = Counter()
    examples: Examples = {}
    selected = documents(_docstrings(config, counts, examples, progress), config.remaining_words)
    if config.limit is not None:
        names = {document.name for document in nsmallest(config.limit, selected, key=lambda d: hash_id(d.name))}
        selected = [document for document in selected if document.name in names]
    # Once: an ingest reads the passages several times.
    cut_documents = [(one, cut_text(one.text, config.passage_words, config.passage_overlap)) for one in selected]

    def passages() -> Iterator[tuple[str, Passage]]:
        for document, pieces in cut_documents:
            further = {"source": PurePosixPath(document.file).parts[0], "module": _module(document.file)}
            for i, text in enumerate(pieces):
                yield document.file, Passage(f"{document.name}#{i}", document.name, document.title, text, further)

    def queries() -> Iterator[tuple[str, Query]]:
        for document in selected:
            if document.question:
                yield document.file, Query(document.name, split_of(document.file), document.question, [])

    def qrels() -> Iterator[tuple[str, Judgement]]:
        for document, pieces in cut_documents:
            if document.question:
                for i in range(len(pieces)):
                    yield (
                        document.file,
                        Judgement(split_of(document.file), document.name, f"{document.name}#{i}", 1),
                    )

    return Source(passages=passages, queries=queries, qrels=qrels, counts=counts, examples=examples)


def split_of(file: str) -> str:
    """Returns train, dev or test (80/10/10), by a hash of the file's name."""
    return TENTHS[hash_id(file) % 10]


def _module(file: str) -> str:
    """Returns the module's dotted name from a file's name in `sources`."""
    _, *folders, name = PurePosixPath(file).with_suffix("").parts
    return ".".join(folders if name == "__init__" else (*folders, name))


def _docstrings(
    config: PydocsConfig, counts: Counter[str], examples: Examples, progress: Progress
) -> Iterator[tuple[str, str, str]]:
    """Yields (file, qualified name, docstring) of every docstring that is long enough."""
    paths = sources(config)
    counts.update(files=len(paths), unparsed_files=0)
    for done, (file, path) in enumerate(paths.items()):
        progress(done, len(paths), "files")
        try:
            for name, text in docstrings(path.read_bytes(), _module(file)):
                if len(text) >= config.docstring_characters:
                    yield file, name, text
        except (SyntaxError, ValueError):
            counts["unparsed_files"] += 1
            keep(examples, "unparsed_files", file)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
    progress(len(paths), len(paths), "files")
