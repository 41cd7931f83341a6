"""Reader of the tokens artifact: texts of unequal length in flat, memory-mapped arrays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.data.stored import read_json, told


@dataclass(frozen=True)
class Specials:
    """Ids of the tokenizer's special tokens, and the number of its entries."""

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
    """n texts of T tokens together. Row i is flat[offsets[i]:offsets[i + 1]]."""

    tokens: np.ndarray
    """[T] uint16 or uint32: ids, without special tokens."""
    offsets: np.ndarray
    """[n + 1] int64."""
    word_starts: np.ndarray
    """[T] bool: does the token start a word; always true of a text's first token."""
    sentence_starts: np.ndarray | None
    """[T] bool, passages only: does the token start a sentence; always true of a text's first token."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Ids of text i, [length]; a view of the file, not a copy."""
        return self.tokens[self.span(i)]

    def span(self, i: int) -> slice:
        """Where text i lies in the flat arrays."""
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, [n] int64."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Tokens:
    """The tokens artifact."""

    passages: Ragged
    titles: Ragged
    """One row a passage."""
    queries: Ragged
    doc_offsets: np.ndarray
    """[documents + 1] int64: document d holds passages doc_offsets[d] up to doc_offsets[d + 1]."""
    specials: Specials

    @staticmethod
    def open(folder: Path) -> "Tokens":
        """Open a tokens artifact; reads no token before it is asked for. Raises InputError."""
        specials = _read_specials(folder / "specials.json")
        passages, titles, queries = (_open_ragged(folder / name) for name in ("passages", "titles", "queries"))
        return Tokens(passages, titles, queries, _map(folder / "doc_offsets.npy"), specials)


def _read_specials(path: Path) -> Specials:
    said = read_json(path)
    with told(path):
        return Specials(**said)


def _open_ragged(folder: Path) -> Ragged:
    sentence_starts = folder / "sentence_starts.npy"
    return Ragged(
        tokens=_map(folder / "tokens.npy"),
        offsets=_map(folder / "offsets.npy"),
        word_starts=_map(folder / "word_starts.npy"),
        sentence_starts=_map(sentence_starts) if sentence_starts.exists() else None,
    )


def _map(path: Path) -> np.ndarray:
    with told(path):
        try:
            return np.load(path, mmap_mode="r")
        except ValueError:  # an empty array cannot be mapped
            return np.load(path)
