"""Passage vectors of a collection, in shards that are finished one by one."""

from pathlib import Path

from pydantic import Field

from pipeline.config import Config
from pipeline.work import Metrics, Work


class EncodeConfig(Config):
    title_tokens: int = Field(ge=0)
    """Tokens of the title that are kept. 0: passages without titles."""
    passage_tokens: int = Field(ge=8, le=512)
    """Tokens of a passage's input, title and special tokens included. 128 (MARCO) or 256 (NQ) in coCondenser, section 4."""
    shard_passages: int = Field(ge=1)
    """Passages in a shard, the unit that a kill can lose."""


def encode(config: EncodeConfig, tokens: Path, checkpoint: Path, work: Work) -> Metrics:
    """Write `shard-00000.npy` (float16, [rows, dimension]) ... and `embeddings.json`, in passage order."""
    raise NotImplementedError
