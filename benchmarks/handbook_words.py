"""Passages of a book in many languages against a model's input: `python -m benchmarks.handbook_words FOLDER`.

FOLDER has a folder of HTML files for each language: usr/share/doc/debian-handbook/html of the Debian package
debian-handbook. Each language is read as the recipe `text` reads it, without generated questions. Two tokenizers are
trained on it, of the recipe's size: this project's WordPiece, and Unigram. `--vocabulary` adds a `vocab.txt` of an
English model. The table counts the tokens of the passages' texts; `input` is a passage as the recipe's models read it
with WordPiece: title, text and special tokens. Exit code 1 if more than 5 % of a language's inputs are longer than the
recipe's models read. 26 languages take six minutes.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from flows.recipes.recipe import resolve
from pipeline.data.collection import passage_batches
from pipeline.data.ingest import ingest
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.tokenizer import read_tokenizer, read_tokenizer_or_vocabulary, tokenizer
from pipeline.tokenization.tokens import encode
from pipeline.tokenization.wordpiece import Normal

MOST_CUT = 0.05
"""Largest share of passages that are longer than the input."""
ENGLISH = "en-US"


class Lengths(NamedTuple):
    """Tokens of a language's passages with one tokenizer, and of a full input."""

    median: float
    p95: float
    longer: float
    """Share beyond the input."""


class Language(NamedTuple):
    name: str
    passages: int
    words: Any
    lengths: dict[str, Lengths]
    """By tokenizer; `input`: WordPiece, with title and special tokens."""


def main(
    folder: Annotated[Path, typer.Argument(help="Has a folder of HTML files for each language.")],
    languages: Annotated[list[str] | None, typer.Argument(help="Folders to read (default: all).")] = None,
    words: Annotated[int, typer.Option(help="ingest.passage_words")] = 80,
    vocabulary: Annotated[Path | None, typer.Option(help=f"A vocab.txt, for {ENGLISH}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Measures the passages of each language."""
    names = languages or sorted(path.name for path in folder.iterdir() if path.is_dir())
    rows = [measured(folder / name, words, vocabulary if name == ENGLISH else None) for name in names]
    if as_json:
        print(
            json.dumps([row._asdict() | {"lengths": {k: v._asdict() for k, v in row.lengths.items()}} for row in rows])
        )
    else:
        Console(width=200).print(table(rows))
    if any(row.lengths["input"].longer > MOST_CUT for row in rows):
        sys.exit(1)


def measured(folder: Path, words: int, vocabulary: Path | None) -> Language:
    """Reads the files of a language and counts the tokens of their passages."""
    recipe = resolve("text", [f"ingest.path={folder}", "ingest.questions=[]", f"ingest.passage_words={words}"])
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        works = {stage: Work(place / stage, place, recipe.machine, silent) for stage in ("ingest", "tokenizer")}
        for work in works.values():
            work.out.mkdir()
        metrics = ingest(recipe.ingest, works["ingest"])
        tokenizer(recipe.tokenizer, place / "ingest", works["tokenizer"])
        wordpiece = read_tokenizer(place / "tokenizer")
        batches = [*passage_batches(place / "ingest", ["title", "text"])]
    titles, texts = ([text for batch in batches for text in batch[column]] for column in ("title", "text"))
    tokenizers = {"WordPiece": wordpiece, "Unigram": unigram(texts, recipe.tokenizer.vocab_size)}
    if vocabulary is not None:
        tokenizers[vocabulary.parent.name] = read_tokenizer_or_vocabulary(vocabulary, Normal(True, False, False))
    tokens = recipe.encode.passage_tokens
    lengths = {name: shares(token_counts(one, texts), tokens - 2) for name, one in tokenizers.items()}
    title_N = np.minimum(token_counts(wordpiece, titles), recipe.encoder.title_tokens)
    lengths["input"] = shares(token_counts(wordpiece, texts) + title_N + (title_N > 0) + 2, tokens)
    return Language(folder.name, len(texts), metrics["words"], lengths)


def unigram(texts: Iterable[str], entries: int) -> Tokenizer:
    """Trains a tokenizer as SentencePiece does."""
    trained = Tokenizer(models.Unigram())
    trained.normalizer = normalizers.NFKC()
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=entries, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    trained.train_from_iterator(texts, trainer)
    return trained


def token_counts(one: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """Returns the number of tokens of each text, without special tokens, [N]."""
    return np.array([len(ids) for ids in encode(one, list(texts))])


def shares(tokens_N: np.ndarray, room: int) -> Lengths:
    """Returns the distribution. `room`: most tokens that are read."""
    return Lengths(float(np.median(tokens_N)), float(np.percentile(tokens_N, 95)), float((tokens_N > room).mean()))


def shown(lengths: Lengths) -> str:
    return f"{lengths.median:.0f} / {lengths.p95:.0f} / {lengths.longer:.1%}"


def table(rows: Iterable[Language]) -> Table:
    """Returns a row per language: median, 95th percentile and share beyond the input, per tokenizer."""
    result = Table("language", "passages", "words", "median / 95th percentile / share beyond the input")
    for row in rows:
        found = "   ".join(f"{name} {shown(lengths)}" for name, lengths in row.lengths.items())
        result.add_row(row.name, f"{row.passages:,}", f"{row.words:,}", found)
    return result


if __name__ == "__main__":
    typer.run(main)
