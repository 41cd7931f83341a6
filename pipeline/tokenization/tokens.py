"""Tokenises the collection into flat files that are memory-mapped (pipeline/tokenization/token_files.py)."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from pydantic import Field
from tokenizers import Encoding, Tokenizer

from pipeline.config import Config
from pipeline.data.collection import passage_batches, passage_count, read_queries
from pipeline.data.sentences import sentences
from pipeline.data.words import blank
from pipeline.notices import cut_metrics
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization.tokenizer import kind, read_tokenizer, special_tokens

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
            writer.write(encode(reader, queries[start : start + BATCH_ROWS]))
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


def word_start_table(tokenizer: Tokenizer) -> np.ndarray:
    """Returns [vocabulary] bool: whether the entry starts a word when it is not the first token of a text.

    WordPiece continues a word with `##`; byte-level BPE starts one at a space, written Ġ (Ċ, ĉ, č: line feed, tab,
    return), Unigram at a space, written ▁.
    """
    vocabulary = tokenizer.get_vocab()
    texts = sorted(vocabulary, key=vocabulary.__getitem__)
    if kind(tokenizer) == "wordpiece":
        prefix = json.loads(tokenizer.to_str())["model"]["continuing_subword_prefix"]
        return np.array([not text.startswith(prefix) for text in texts])
    return np.array([text.startswith(("Ġ", "Ċ", "ĉ", "č", "▁")) for text in texts])


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

    def write(self, ids: list[list[int]], sentence_starts: list[int] | None = None) -> None:
        """Appends texts. `sentence_starts`: indices of tokens that start a sentence, 0 for the first of these texts."""
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        ends = lengths.cumsum()
        flat = np.fromiter(chain.from_iterable(ids), self.dtype, int(lengths.sum()))
        firsts = (ends - lengths)[lengths > 0]
        words = self.table[flat]
        words[firsts] = True
        if self.sentence_starts is not None:
            starts = np.zeros(len(flat), bool)
            starts[firsts] = True
            starts[sentence_starts or []] = True
            self.sentence_starts.write(starts)
        self.offsets.write(self.total + ends)
        self.tokens.write(flat)
        self.word_starts.write(words)

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
            ids, starts, cut_here, lost_here = _with_sentences(tokenizer, batch["text"], max_tokens)
            passages.write(ids, starts)
            cut, lost = cut + cut_here, lost + lost_here
            empty += sum(not found and not blank(text) for text, found in zip(batch["text"], ids, strict=True))
            titles.write(encode(tokenizer, batch["title"]))
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


def _with_sentences(
    tokenizer: Tokenizer, texts: list[str], max_tokens: int | None
) -> tuple[list[list[int]], list[int], int, int]:
    """Returns the ids of each text, the starts of sentences in their concatenation, the number of cut texts, and that
    of the tokens beyond the cuts."""
    ids: list[list[int]] = []
    starts: list[int] = []
    total = cut = lost = 0
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
        ids.append(encoding.ids[:max_tokens])
        starts += [total + token for token in sentence_tokens(text, encoding) if token < len(ids[-1])]
        total += len(ids[-1])
        cut += len(ids[-1]) < len(encoding.ids)
        lost += len(encoding.ids) - len(ids[-1])
    return ids, starts, cut, lost


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
