"""The model before any pre-training: a ready one, or one made from scratch."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline import hub
from pipeline.config import Config
from pipeline.work import Metrics, Work

FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


class InitialConfig(Config):
    """A ready BERT or RoBERTa type model from `pretrained` or `checkpoint`; with neither, one from scratch."""

    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model of BERT or RoBERTa type, such as `bert-base-uncased` (Condenser, section 4.1)."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    checkpoint: Path | None
    """A local folder that holds such a model; a `head.safetensors` in it is kept."""
    architecture: Literal["bert", "roberta"]
    """Type of a model from scratch. This and all fields below are for a model from scratch."""
    layers: int = Field(ge=1)
    """Transformer layers of the backbone, early and late together."""
    hidden_size: int = Field(ge=1)
    """Dimensions of a token's state, and of a text's vector."""
    heads: int = Field(ge=1)
    """Attention heads; they divide `hidden_size`."""
    intermediate_size: int = Field(ge=1)
    """Dimensions of the feed-forward layer."""
    max_position: int = Field(ge=8)
    """Longest input in tokens, special tokens included."""
    dropout: float = Field(ge=0, lt=1)
    """Dropout probability of hidden states and attention weights."""
    seed: int = Field(ge=0)
    """Seed of the random weights."""
    embeddings: Literal["random", "ppmi_svd"]
    """Token embeddings: random, or a truncated SVD of the collection's own PPMI matrix (pipeline/ppmi.py)."""
    ppmi_window: int = Field(ge=1)
    """Tokens on each side that count as context."""
    ppmi_context_exponent: float = Field(gt=0, le=1)
    """Exponent that smooths the context distribution (Levy, Goldberg and Dagan 2015, section 3.1: 0.75)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.pretrained is not None and self.checkpoint is not None:
            raise ValueError(
                "pretrained and checkpoint are both set: set one of them, or neither to start from scratch"
            )
        if self.hidden_size % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide hidden_size ({self.hidden_size})")
        return self


def missing(config: InitialConfig) -> list[str]:
    """Lines that say how to bring what the stage would download and cannot; empty where nothing is missing."""
    return hub.missing(config.pretrained, config.revision, FILES, "initial.checkpoint")


def initial(config: InitialConfig, tokenizer: Path, tokens: Path, work: Work) -> Metrics:
    """Write the checkpoint that pre-training starts from."""
    raise NotImplementedError
