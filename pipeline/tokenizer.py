"""The tokenizer: a ready one, or WordPiece trained on the collection."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from pipeline import hub
from pipeline.config import Config
from pipeline.work import Metrics, Work

FILES = ("tokenizer.json", "vocab.txt", "vocab.json")


class TokenizerConfig(Config):
    """A ready tokenizer from `pretrained` or `path`; with neither, WordPiece is trained on the collection."""

    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model whose tokenizer is taken, such as `bert-base-uncased`."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    path: Path | None
    """A local folder that holds a tokenizer (WordPiece or byte-level BPE), or a WordPiece `vocab.txt`."""
    vocab_size: int = Field(ge=100)
    """Entries of a trained vocabulary, special tokens included. A small collection may give fewer."""
    lowercase: bool
    """Lower case, accents stripped (as BERT's uncased models). For a trained vocabulary and a `vocab.txt`."""
    split_identifiers: bool
    """Split words at `_` and at camelCase. For a trained vocabulary and a `vocab.txt`."""
    drop_rules: bool
    """Drop runs of three or more ASCII punctuation marks (banner lines). For a trained vocabulary and a `vocab.txt`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.pretrained is not None and self.path is not None:
            raise ValueError("pretrained and path are both set: set one of them, or neither to train a tokenizer")
        return self


def missing(config: TokenizerConfig) -> list[str]:
    """Lines that say how to bring what the stage would download and cannot; empty where nothing is missing."""
    return hub.missing(config.pretrained, config.revision, FILES, "tokenizer.path")


def tokenizer(config: TokenizerConfig, collection: Path, work: Work) -> Metrics:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    raise NotImplementedError
