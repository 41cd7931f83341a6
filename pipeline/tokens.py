"""The collection as token ids, in flat files that are read memory-mapped (pipeline/ragged.py)."""

from pathlib import Path

from pydantic import Field

from pipeline.config import Config
from pipeline.work import Metrics, Work


class TokensConfig(Config):
    """How texts become ids."""

    max_tokens: int = Field(ge=0)
    """Tokens kept of each passage, without special tokens. 0: all."""


def tokens(config: TokensConfig, collection: Path, tokenizer: Path, work: Work) -> Metrics:
    """Tokenise passages, titles and queries of a collection, in the format of `ragged.Tokens`."""
    raise NotImplementedError
