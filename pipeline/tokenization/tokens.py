"""Tokenises the collection into flat files that are memory-mapped (pipeline/tokenization/token_files.py)."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from pydantic import Field
from tokenizers import Encoding, Tokenizer

from pipeline.config import Config
from pipeline.data.collection import passage_batches, passage_count, read_queries
from pipeline.data.text.sentences import sentences
from pipeline.data.text.words import blank
from pipeline.notices import cut_metrics
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens
from pipeline.tokenization.word_starts import unspaced_tokens, word_start_table

BATCH_ROWS = 512


class TokensConfig(Config):
    """Settings of tokenisation."""

    max_tokens: int | None = Field(ge=1)
    """Maximum number of tokens kept of a passage, without special tokens. null: all."""


def tokens(config: TokensConfig, collection: Path, tokenizer: Path, work: Work) -> Metrics:
    """Tokenises passages, titles and queries of a collection, in the format of `token_files.Tokens`.

    Streams. Memory: one batch, and the questions. Special tokens in a text are treated as text.
    """
    reader = read_tokenizer(tokenizer)
    specials, _ = special_tokens(reader)
    queries = [query.text for query in read_queries(collection)]
    counts = _write_passages(config.max_tokens, collection, reader, work)
    with RaggedWriter(work.out / "queries", reader) as writer:
        for start in range(0, len(queries), BATCH_ROWS):
            texts = queries[start : start + BATCH_ROWS]
            writer.write(texts, reader.encode_batch(texts, add_special_tokens=False))
    (work.out / "specials.json").write_text(json.dumps(asdict(specials), indent=2) + "\n", "utf-8")
    return {**counts, "queries": len(queries), "query_tokens": writer.total}


def encode(tokenizer: Tokenizer, texts: list[str], max_tokens: int | None = None) -> list[list[int]]:
    """Returns the ids of each text without special tokens, at most `max_tokens` of them (None: all).

    All texts are tokenised here, so that a question typed by a user gives the same ids as in the artifact.
    """
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids[:max_tokens] for encoding in encodings]


def sentence_tokens(text: str, encoding: Encoding) -> Iterator[int]:
    """Yields the index of the first token of each sentence after the first one, ascending; may repeat a token.

    In byte-level BPE white space belongs to the sentence after it.
    """
    for (_, end), _ in pairwise(sentences(text)):
        for character in range(end, len(text)):  # white space and dropped characters may belong to no token
            token = encoding.char_to_token(character)
            if token is not None:
                yield token
                break


class RaggedWriter:
    """Writes the files of one `token_files.Ragged`, text by text. A context manager."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, sentences: bool = False) -> None:
        folder.mkdir()
        self.table = word_start_table(tokenizer)
        self.dtype = np.dtype(np.uint16 if len(self.table) <= 1 << 16 else np.uint32)
        self.tokens = Flat(folder / "tokens.npy", self.dtype)
        self.offsets = Flat(folder / "offsets.npy", np.dtype(np.int64))
        self.word_starts = Flat(folder / "word_starts.npy", np.dtype(bool))
        self.sentence_starts = Flat(folder / "sentence_starts.npy", np.dtype(bool)) if sentences else None
        self.offsets.write(np.zeros(1))

    @property
    def total(self) -> int:
        """Number of tokens written."""
        return self.tokens.length

    def write(self, texts: list[str], encodings: list[Encoding], max_tokens: int | None = None) -> list[list[int]]:
        """Appends texts and returns their ids, at most `max_tokens` of each (None: all)."""
        ids = [encoding.ids[:max_tokens] for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        ends = lengths.cumsum()
        flat = np.fromiter(chain.from_iterable(ids), self.dtype, int(lengths.sum()))
        firsts = (ends - lengths)[lengths > 0]
        words = self.table[flat]
        words[firsts] = True
        words[_places(unspaced_tokens, texts, encodings, lengths)] = True
        if self.sentence_starts is not None:
            starts = np.zeros(len(flat), bool)
            starts[firsts] = True
            starts[_places(sentence_tokens, texts, encodings, lengths)] = True
            self.sentence_starts.write(starts)
        self.offsets.write(self.total + ends)
        self.tokens.write(flat)
        self.word_starts.write(words)
        return ids

    def __enter__(self) -> "RaggedWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self.tokens, self.offsets, self.word_starts, self.sentence_starts):
            if file is not None:
                file.close()


def _write_passages(max_tokens: int | None, collection: Path, tokenizer: Tokenizer, work: Work) -> Metrics:
    started, done, documents, document, cut, lost, empty = time.monotonic(), 0, 0, None, 0, 0, 0
    total = passage_count(collection)
    doc_offsets = Flat(work.out / "doc_offsets.npy", np.dtype(np.int64))
    with (
        RaggedWriter(work.out / "passages", tokenizer, sentences=True) as passages,
        RaggedWriter(work.out / "titles", tokenizer) as titles,
    ):
        for batch in passage_batches(collection, ["doc_id", "title", "text"], BATCH_ROWS):
            encodings = tokenizer.encode_batch(batch["text"], add_special_tokens=False)
            ids = passages.write(batch["text"], encodings, max_tokens)
            beyond = [len(encoding.ids) - len(kept) for kept, encoding in zip(ids, encodings, strict=True)]
            cut, lost = cut + sum(tokens > 0 for tokens in beyond), lost + sum(beyond)
            empty += sum(not found and not blank(text) for text, found in zip(batch["text"], ids, strict=True))
            titles.write(batch["title"], tokenizer.encode_batch(batch["title"], add_special_tokens=False))
            before = [document, *batch["doc_id"]]
            firsts = [row for row, doc_id in enumerate(batch["doc_id"], start=done) if doc_id != before[row - done]]
            doc_offsets.write(np.array(firsts))
            done, documents, document = done + len(batch["text"]), documents + len(firsts), before[-1]
            rate = done / (time.monotonic() - started)
            work.progress(done, total, "passages", {"passages_per_second": rate, "tokens": passages.total})
    doc_offsets.write(np.array([done]))
    doc_offsets.close()
    return {
        "passages": done,
        "documents": documents,
        "passage_tokens": passages.total,
        "title_tokens": titles.total,
        "tokens_per_passage": passages.total / max(1, done),
        **cut_metrics("passages", cut, done, lost, passages.total + lost),
        "passages_without_tokens": empty,
    }


def _places(
    tokens_of: Callable[[str, Encoding], Iterable[int]],
    texts: list[str],
    encodings: list[Encoding],
    lengths: np.ndarray,
) -> list[int]:
    """Returns the places of `tokens_of` each text in the texts' kept tokens one after another, of these `lengths`."""
    begins = (lengths.cumsum() - lengths).tolist()
    return [
        begin + token
        for text, encoding, begin, length in zip(texts, encodings, begins, lengths.tolist(), strict=True)
        for token in tokens_of(text, encoding)
        if token < length
    ]


class Flat:
    """Writes a one-dimensional .npy file piece by piece. The header with the length is written on `close`."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.length = 0
        self._file = path.open("wb")
        self._write_header()

    def write(self, values: np.ndarray) -> None:
        """Appends `values`, [n], converted to the file's type."""
        self._file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def close(self) -> None:
        """Writes the final header. Until then the file reads as empty."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        # NumPy pads the header so that the first dimension can grow in place: its size is the same for any length.
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)
