"""The configuration of fine-tuning."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config, Seed
from pipeline.finetune.validation import ValidationConfig
from pipeline.training.loop import Optimiser


class AbsConfig(Config):
    """The search of Adaptive Batch Scheduling, if `order` selects it."""

    beam_width: int = Field(ge=1)
    """Beam search compares the square of this number of swaps. The paper does not give it."""
    list_depth: int = Field(ge=1)
    """Candidates of beam search, and of greedy search beyond 10,000 pairs: each question's best passages and each
    passage's best questions. 100 in the ABS paper."""
    pool: int = Field(ge=0)
    """Pairs that are scheduled together at most, a random part of the epoch: less memory, and the first batches are
    ready sooner. 0: all."""


class FinetuneConfig(Config):
    epochs: int = Field(ge=1)
    """Passes over the training examples. 3 (MARCO) or 40 (NQ) in coCondenser, section 4."""
    batch_queries: int = Field(ge=1)
    """Questions in an update, over all ranks. 8 (MARCO), 128 (NQ)."""
    negatives_per_query: int = Field(ge=0)
    """Own negatives of each question. 7 (MARCO), 1 (NQ)."""
    negatives_from: Literal["bm25", "collection"]
    """First negatives: the bm25 stage's, or those of the collection's own files (MS MARCO's official triples)."""
    negative_depth: int = Field(ge=0)
    """First negatives considered for each question, best first. 0: all."""
    mix: Literal["twice", "pooled"]
    """With mined negatives: each question once per epoch with each kind (authors' code), or both kinds in one pool."""
    share_negatives: int = Field(ge=0)
    """Size of the groups of neighbours in a batch that use each other's passages as in-batch negatives. 0: the full
    batch over all ranks (cross-batch negatives: RocketQA, section 4.2.1); 1: only a question's own negatives."""
    positives_considered: int = Field(ge=0)
    """Number of a question's first judged passages from which the positive is drawn. 0: all."""
    max_queries: int = Field(ge=0)
    """Training questions, the first of a seeded shuffle, so that a larger set contains each smaller one. 0: all."""
    subset_seed: Seed
    """Seed of that shuffle: the same in all stages, so that they use the same questions."""
    passage_tokens: int = Field(ge=8, le=512)
    """Tokens of a passage's input, title and special tokens included. 128 (MARCO), 256 (NQ)."""
    loss: Literal["contrastive", "soft_labels", "learning_to_rank"]
    """`soft_labels`: a cross-encoder's softmax over the question's own passages as targets (coCondenser, section 5.1).
    `learning_to_rank`: scores sigmoid(W [q ; d] + b), for comparison (the ABS paper); validated, but not searched."""
    temperature: float = Field(gt=0)
    """Divides the inner products. 1 in the papers."""
    teacher_temperature: float = Field(gt=0)
    """Divides the cross-encoder's scores before their softmax. 1."""
    mask_positives: bool
    """Leave passages of the batch that are not negatives of a question (its other judged passages, copies of its
    positives, the question itself) out of its softmax."""
    order: Literal["random", "sequential", "abs_greedy", "abs_beam"]
    """Order of an epoch's examples: a new shuffle each epoch, the collection's order of questions, or batches of
    questions whose positives are hard negatives for each other (Adaptive Batch Scheduling)."""
    abs: AbsConfig
    validation: ValidationConfig
    dropout: float | None = Field(ge=0, lt=1)
    """Dropout of hidden states and attention. None: the value of the checkpoint's configuration."""
    seed: Seed
    """Seed of examples; dropout uses the optimiser's seed."""
    optimiser: Optimiser
    """AdamW. Learning rate 5e-6 (MARCO), 1e-5 (NQ)."""

    @model_validator(mode="after")
    def _has_negatives(self) -> Self:
        if self.negatives_per_query:
            return self
        if self.loss == "soft_labels":
            raise ValueError("loss: soft_labels needs negatives_per_query above 0")
        for field in ("batch_queries", "share_negatives"):
            if getattr(self, field) == 1:
                raise ValueError(f"{field}: 1 with negatives_per_query: 0 leaves a question only its positive")
        return self
