"""The configuration of fine-tuning."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config, DropoutShare, Seed
from pipeline.finetune.validation import ValidationConfig
from pipeline.modeling.model_files.model_config import LONGEST
from pipeline.training.loop import Optimiser


class TrainSubset(Config):
    """The training questions that stage 1, stage 2 and the cross-encoder use."""

    queries: int | None = Field(ge=1)
    """Their number, the first of a seeded shuffle, so that a larger set contains each smaller one. null: all."""
    seed: Seed
    """Seed of that shuffle."""

    def size(self, questions: int) -> int:
        """Returns how many of `questions` are used."""
        return min(questions, self.queries or questions)


class ExamplesConfig(Config):
    """The examples that fine-tuning and the cross-encoder train on, and their optimiser."""

    epochs: int = Field(ge=1)
    """Passes over the training examples. 3 (MARCO) or 40 (NQ) in coCondenser, section 4; 2 in LCE's code."""
    batch_queries: int = Field(ge=1)
    """Questions in an update, over all ranks. 8 (MARCO), 128 (NQ)."""
    negatives_per_query: int = Field(ge=0)
    """Own negatives of each question. 7 (MARCO; LCE's code), 1 (NQ)."""
    negatives_from: Literal["bm25", "collection"]
    """First negatives: the bm25 stage's, or those of the collection's own files (MS MARCO's official triples)."""
    negative_depth: int | None = Field(ge=1)
    """First negatives considered for each question, best first. null: all."""
    mix_negatives: Literal["separate_epochs", "pooled"]
    """With mined negatives: each question once per epoch with each kind (authors' code), or both kinds in one pool."""
    positives_considered: int | None = Field(ge=1)
    """Number of a question's first judged passages from which the positive is drawn. null: all."""
    dropout: DropoutShare
    """Dropout of hidden states and attention."""
    seed: Seed
    """Seed of the examples, of dropout and of new weights."""
    optimiser: Optimiser
    """AdamW. Learning rate 5e-6 (MARCO), 1e-5 (NQ); 1e-5 in LCE's code."""


class BatchScheduling(Config):
    """The search of Adaptive Batch Scheduling (the ABS paper), if `batch_order` selects it."""

    beam_width: int = Field(ge=1)
    """Beam search compares the square of this number of swaps. The paper does not give it."""
    list_depth: int = Field(ge=1)
    """Candidates of beam search, and of greedy search beyond 10,000 pairs: each question's best passages and each
    passage's best questions. 100 in the ABS paper."""
    pool: int | None = Field(ge=1)
    """Pairs that are scheduled together at most, a random part of the epoch: less memory, and the first batches are
    ready sooner. null: all."""


class MergeConfig(Config):
    """The mean of the trained weights and those that training started from (Wortsman et al. 2022, WiSE-FT)."""

    shares: list[Annotated[float, Field(gt=0, le=1)]] = Field(min_length=1)
    """Shares of the trained weights; 1: the trained model. The first is used, unless at least 50 dev questions prove
    another one better by RR@10 of their candidates (p < .05, paired randomisation, corrected by Holm's method)."""
    questions: int = Field(ge=50)
    """Most dev questions that decide."""
    candidates: int = Field(ge=2)
    """Passages that each of them ranks: a judged one and others of BM25's list."""


class FinetuneConfig(ExamplesConfig):
    share_negatives: int | None = Field(ge=1)
    """Size of the groups of neighbours in a batch that use each other's passages as in-batch negatives. null: the full
    batch over all ranks (cross-batch negatives: RocketQA, section 4.2.1); 1: only a question's own negatives."""
    passage_tokens: int = Field(ge=8, le=LONGEST)
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
    batch_order: Literal["random", "sequential", "abs_greedy", "abs_beam"]
    """Order of an epoch's examples: a new shuffle each epoch, the collection's order of questions, or batches of
    questions whose positives are hard negatives for each other (Adaptive Batch Scheduling)."""
    batch_scheduling: BatchScheduling
    validation: ValidationConfig
    merge: MergeConfig | None = None
    """Merges the trained model with the one that it started from. null: the trained model."""

    @model_validator(mode="after")
    def _all_ranks_have_the_kept_weights(self) -> Self:
        if self.merge is not None and len(self.merge.shares) > 1 and self.validation.keep == "best":
            raise ValueError("merge: several shares need validation.keep: last")
        return self

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
