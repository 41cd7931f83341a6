"""Condenser pre-training: masked language modelling through a head that sees the text's late CLS vector (Condenser,
section 3)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.training import Optimiser, exactly_one
from pipeline.work import Machine, Metrics, Progress, Work

if TYPE_CHECKING:
    from torch import nn


class CondenserConfig(Config):
    steps: int | None = Field(ge=0)
    """Updates. 0: the start passes through, with its head or a random one. One of `steps`, `epochs` and `tokens`."""
    epochs: float | None = Field(gt=0)
    """Passes over the blocks. 8 in the authors' code; the gain diminishes after 4."""
    tokens: int | None = Field(gt=0)
    """Tokens read, special tokens included."""
    batch_blocks: int | None = Field(ge=1)
    """Blocks in an update, over all ranks. 1,024 in the authors' code. Either this or `batch_tokens`."""
    batch_tokens: int | None = Field(ge=1)
    """Tokens in an update, over all ranks, special tokens included. Either this or `batch_blocks`."""
    length: int = Field(ge=8)
    """Longest block in tokens, special tokens included. 128 in the authors' code."""
    short_probability: float = Field(ge=0, le=1)
    """Probability that a block's target length is drawn uniformly up to the longest. 0.1 in the authors' code."""
    mask_fraction: float = Field(gt=0, lt=1)
    """Share of a block's tokens that is masked, by whole words. 0.15 in the authors' code."""
    head_layers: int = Field(ge=1)
    """Transformer layers of the Condenser head. 2 (Condenser, section 4.1)."""
    skip_from: int = Field(ge=0)
    """Backbone layer whose output goes to the head (0: the embeddings). 6 of 12 (Condenser, section 4.1)."""
    continued: bool
    """Go on with the head of the start, which must hold one (pre-training on the target collection). False: a random
    head (Condenser, section 3.2)."""
    checkpoint: Path | None
    """A finished checkpoint with its head, taken instead of training. Null: train."""
    optimiser: Optimiser

    @model_validator(mode="after")
    def _one_of_each(self) -> "CondenserConfig":
        exactly_one(self, "steps", "epochs", "tokens")
        exactly_one(self, "batch_blocks", "batch_tokens")
        return self


def condenser(config: CondenserConfig, tokens: Path, start: Path, work: Work) -> Metrics:
    """Trains the checkpoint `start` on blocks of the passages of `tokens`; writes a checkpoint with its head."""
    raise NotImplementedError
