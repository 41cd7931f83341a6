"""Fine-tuning a bi-encoder on questions, their judged passages and negatives (coCondenser, section 3.3)."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.config import Config
from pipeline.training import Optimiser
from pipeline.work import Metrics, Work


class FinetuneConfig(Config):
    epochs: int = Field(ge=1)
    """Passes over the training examples. 3 (MARCO) or 40 (NQ) in coCondenser, section 4."""
    batch_queries: int = Field(ge=1)
    """Questions in an update, over all ranks. 8 (MARCO), 128 (NQ)."""
    negatives_per_query: int = Field(ge=0)
    """Own negatives of each question. 7 (MARCO), 1 (NQ)."""
    negatives_from: Literal["bm25", "collection"]
    """First negatives: those of the bm25 stage, or those that came with the collection (MS MARCO's official triples)."""
    negative_depth: int = Field(ge=0)
    """First negatives considered for each question, best first. 0: all."""
    mix: Literal["twice", "pooled"]
    """With mined negatives: each question once with either kind an epoch (authors' code), or both kinds in one pool."""
    positives_considered: int = Field(ge=0)
    """Judged passages of a question among which the positive is drawn, first ones first. 0: all."""
    max_queries: int = Field(ge=0)
    """Training questions, the first of a seeded shuffle, so that smaller sets lie within larger ones. 0: all."""
    title_tokens: int = Field(ge=0)
    """Tokens of the title that are kept. 0: passages without titles."""
    passage_tokens: int = Field(ge=8, le=512)
    """Tokens of a passage's input, title and special tokens included. 128 (MARCO), 256 (NQ)."""
    question_tokens: int = Field(ge=4, le=512)
    """Tokens of a question's input, special tokens included. 32."""
    pooling: Literal["cls", "mean"]
    """What of the last layer is the vector. CLS in the papers."""
    tied: bool
    """One encoder for questions and passages (MARCO), or two that start equal (DPR's set-up)."""
    temperature: float = Field(gt=0)
    """Divides the inner products. 1 in the papers."""
    mask_positives: bool
    """Keep the other judged passages of a question out of its softmax where they occur in the batch."""
    dropout: float | None = Field(ge=0, lt=1)
    """Dropout of hidden states and attention. None: what the checkpoint's configuration says."""
    seed: int = Field(ge=0)
    """Seed of examples and subsets; dropout has the optimiser's."""
    optimiser: Optimiser


def finetune(
    config: FinetuneConfig,
    collection: Path,
    tokens: Path,
    start: Path,
    bm25: Path,
    mined: Path | None,
    work: Work,
) -> Metrics:
    """Train from checkpoint `start` and write a checkpoint (`query/` and `passage/` where untied).

    `bm25` and `mined` hold a `negatives.parquet`; without `mined` this is stage 1.
    Raises InputError where no training question has a judged passage.
    """
    raise NotImplementedError
