"""Reads the tokens artifact: texts of different lengths in flat, memory-mapped arrays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.data.stored import input_error_on_read, read_json


@dataclass(frozen=True)
class Specials:
    """Ids of the tokenizer's special tokens, and the size of its vocabulary."""

    vocab_size: int
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    @property
    def ids(self) -> tuple[int, ...]:
        """The five ids, sorted."""
        return tuple(sorted((self.pad, self.unk, self.cls, self.sep, self.mask)))


@dataclass(frozen=True)
class Ragged:
    """n texts with T tokens in total. Text i is tokens[offsets[i]:offsets[i + 1]]."""

    tokens: np.ndarray
    """[T] uint16 or uint32: ids, without special tokens."""
    offsets: np.ndarray
    """[n + 1] int64."""
    word_starts: np.ndarray
    """[T] bool: whether the token starts a word; always true for the first token of a text."""
    sentence_starts: np.ndarray | None
    """[T] bool, passages only: whether the token starts a sentence; always true for the first token of a text."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Returns the ids of text i, [length]: a view of the file, not a copy."""
        return self.tokens[self.span(i)]

    def span(self, i: int) -> slice:
        """Returns the slice of text i in the flat arrays."""
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text, [n] int64."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Tokens:
    """The tokens artifact."""

    passages: Ragged
    titles: Ragged
    """One text per passage."""
    queries: Ragged
    doc_offsets: np.ndarray
    """[documents + 1] int64: document d consists of passages doc_offsets[d] to doc_offsets[d + 1] - 1."""
    specials: Specials

    @staticmethod
    def open(folder: Path) -> "Tokens":
        """Opens a tokens artifact; tokens are read on access. Raises InputError for missing or damaged files."""
        specials = _read_specials(folder / "specials.json")
        passages, titles, queries = (_open_ragged(folder / name) for name in ("passages", "titles", "queries"))
        return Tokens(passages, titles, queries, _map(folder / "doc_offsets.npy"), specials)


def _read_specials(path: Path) -> Specials:
    fields = read_json(path)
    with input_error_on_read(path):
        return Specials(**fields)


def _open_ragged(folder: Path) -> Ragged:
    sentence_starts = folder / "sentence_starts.npy"
    return Ragged(
        tokens=_map(folder / "tokens.npy"),
        offsets=_map(folder / "offsets.npy"),
        word_starts=_map(folder / "word_starts.npy"),
        sentence_starts=_map(sentence_starts) if sentence_starts.exists() else None,
    )


def _map(path: Path) -> np.ndarray:
    with input_error_on_read(path):
        try:
            return np.load(path, mmap_mode="r")
        except ValueError:  # an empty array cannot be mapped
            return np.load(path)
