"""coCondenser pre-training: Condenser's loss and a contrastive loss between spans of a document (coCondenser,
section 3.2)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.training import Optimiser, exactly_one
from pipeline.work import Machine, Metrics, Progress, Work

if TYPE_CHECKING:
    from torch import nn


class CocondenserConfig(Config):
    objective: Literal["cocondenser", "contrastive_only"]
    """`contrastive_only` leaves out the masked language modelling (coCondenser, table 4); inputs are masked in both."""
    steps: int | None = Field(ge=0)
    """Updates. 0: the start passes through. One of `steps`, `epochs` and `tokens`."""
    epochs: float | None = Field(gt=0)
    """Passes over the documents. 8 in the authors' code."""
    tokens: int | None = Field(gt=0)
    """Tokens read, special tokens included."""
    batch_documents: int | None = Field(ge=2)
    """Documents (pairs of spans) in an update, over all ranks. 2,048 (coCondenser, section 4). Either this or
    `batch_tokens`."""
    batch_tokens: int | None = Field(ge=1)
    """Tokens in an update, over all ranks, special tokens included. Either this or `batch_documents`."""
    span_min: int = Field(ge=1)
    """Shortest span in tokens, without special tokens; documents of fewer than twice as many tokens are left out."""
    span_max: int = Field(ge=1)
    """Longest span in tokens, without special tokens: a document of n tokens gives two of min(span_max, n // 2).
    126 in the paper (128 with special tokens); its author later advised about 80."""
    mask_fraction: float = Field(gt=0, lt=1)
    """Share of a span's tokens that is masked, by whole words. 0.15 in the authors' code."""
    skip_from: int = Field(ge=0)
    """Backbone layer whose output goes to the head (0: the embeddings): the same as in the condenser stage."""
    checkpoint: Path | None
    """A finished checkpoint, taken instead of training. Null: train."""
    optimiser: Optimiser

    @model_validator(mode="after")
    def _consistent(self) -> "CocondenserConfig":
        exactly_one(self, "steps", "epochs", "tokens")
        exactly_one(self, "batch_documents", "batch_tokens")
        if self.span_max < self.span_min:
            raise ValueError(f"span_max ({self.span_max}) is below span_min ({self.span_min})")
        return self


def cocondenser(config: CocondenserConfig, tokens: Path, start: Path, work: Work) -> Metrics:
    """Trains the checkpoint `start`, which must hold a head, on pairs of spans; writes a checkpoint with its head."""
    raise NotImplementedError
