"""Inverse Cloze Task pre-training: a sentence retrieves its own passage (Lee, Chang and Toutanova 2019, "Inverse Cloze
Task"). The papers' baseline instead of Condenser and coCondenser.

The setup follows the comparison in ABS: one encoder for both, from BERT, a large batch with the gradient cache, and a
projection that is dropped after training. Passages have no titles, only their tokens, as in the other pre-training
stages (Lee et al. put the title first).
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from pipeline.advice import Changes
from pipeline.errors import InputError
from pipeline.pretrain.config import PretrainConfig, read_budget, updates
from pipeline.pretrain.sampling import batches_in, sampler
from pipeline.pretrain.segments import AT_ONCE, Usable, pairs, sentences, usable
from pipeline.pretrain.start import LARGE, check_inputs, check_start, check_tokens, launch_pretraining, unfit
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Machine, Metrics, Work
from pipeline.tokenization.token_files import Ragged, Tokens

if TYPE_CHECKING:
    from pipeline.modeling.packing import Batch
    from pipeline.pretrain.train import Training


class IctConfig(PretrainConfig):
    """The budget is in steps, 100,000 in Lee et al. 2019, or in epochs: passes over the passages."""

    batch_passages: int = Field(ge=2)
    """Passages, each with a segment, in an update, over all ranks. 4,096 (Lee et al. 2019; ABS): small batches train
    badly."""
    corpus: Literal["pretraining", "collection"]
    """The text to train on: the collection, or the recipe's general text, if it has one."""
    segment_min: int = Field(ge=3)
    """Shortest sentence that becomes a segment, in tokens, special tokens included. Passages of fewer than two
    sentences, or without a sentence of that length, are left out."""
    segment_tokens: int = Field(ge=3)
    """Longest segment in tokens, special tokens included; a longer sentence is truncated."""
    passage_tokens: int = Field(ge=8)
    """Longest passage in tokens, special tokens included; a longer passage is truncated, and its segments come from the
    remaining text."""
    remove_probability: float = Field(ge=0, le=1)
    """Probability that the segment's sentence is removed from its passage. The recipes' 0 keeps the full passage, as
    in the comparison of this baseline (ABS); the task's authors use 0.9, so that the two share fewer words."""
    projection: int = Field(ge=1)
    """Dimensions of the compared vectors: the CLS vector after a linear map without bias, which is dropped after
    training. 128 (Lee et al. 2019; ABS)."""

    @field_validator("budget")
    @classmethod
    def _counts_no_tokens(cls, budget: str | None) -> str | None:
        if budget is not None and read_budget(budget).unit == "tokens":
            raise ValueError("steps or epochs are expected, not tokens")
        return budget

    @model_validator(mode="after")
    def _consistent(self) -> "IctConfig":
        if self.segment_tokens < self.segment_min:
            raise ValueError(f"segment_tokens ({self.segment_tokens}) is below segment_min ({self.segment_min})")
        if self.passage_tokens <= self.segment_min:
            raise ValueError(
                f"passage_tokens ({self.passage_tokens}) does not hold a sentence of segment_min ({self.segment_min}) "
                "and another one"
            )
        return self

    @property
    def longest(self) -> int:
        """Returns the tokens of the longest input, special tokens included."""
        return max(self.segment_tokens, self.passage_tokens)


def usable_passages(config: IctConfig, texts: Ragged) -> Usable:
    """Returns the passages that give pairs. Raises InputError if there is none."""
    passages = usable(texts, config.segment_min - 2, config.passage_tokens - 2)
    if passages.one_sentence == len(texts):
        raise InputError(f"ict: none of {len(texts):,} passages has two sentences in its first {config.passage_tokens} "
                         "tokens, so none gives a pair")  # fmt: skip
    if not len(passages.row_P):
        raise InputError(
            f"ict.segment_min: none of {passages.no_segment:,} passages of two sentences has a sentence of "
            f"{config.segment_min} tokens, special tokens included"
        )
    return passages


def check_ict(config: IctConfig, tokens: Path, start: Path | None) -> None:
    """Raises InputError if the stage will fail with these tokens and a start of that shape; called early.

    `start`: None if it does not exist yet. If there are too few tokens, the error proposes values that fit.
    """
    if start is not None:
        check_start("ict", config.checkpoint or start, tokens, 0, config.longest, "ict")
    check_tokens("ict", config, tokens, check_batch, smaller)


def check_planned(node: Planned) -> None:
    """An early check."""
    check_inputs(node, check_ict)


def check_batch(config: IctConfig, data: Tokens) -> None:
    """Raises InputError if an epoch has no full batch; for a LARGE collection only the training checks this."""
    if len(data.passages.tokens) < LARGE:
        passages = usable_passages(config, data.passages)
        batches_in(np.ones_like(passages.row_P), config.batch_passages, "ict.batch_passages")


def smaller(config: IctConfig, data: Tokens) -> Iterator[Changes]:
    """Yields changes for a small collection: shorter segments, which two of its first passages hold; at most four
    batches per epoch; no training.
    """
    texts, limit = data.passages, config.passage_tokens - 2
    found = sentences(texts, np.arange(min(len(texts), AT_ONCE)), limit)
    several_P = np.bincount(found.passage_N) > 1
    longest_P = np.zeros(len(several_P), np.int64)
    np.maximum.at(longest_P, found.passage_N, found.length_N)
    longest_P = np.sort(longest_P[several_P])[::-1]
    if len(longest_P) > 1:
        shortest = min(config.segment_min - 2, int(longest_P[1]))
        segments = {} if shortest == config.segment_min - 2 else {"segment_min": shortest + 2}
        if segments:
            yield segments
        yield segments | {"batch_passages": max(2, len(usable(texts, shortest, limit).row_P) // 4)}
    yield {"budget": None}


def missing(config: IctConfig) -> list[str]:
    """Returns a line if the stage cannot use its finished checkpoint; no line if it can, or if there is none."""
    return unfit("ict", config.checkpoint, 0, config.longest, "ict", False)


def ict(config: IctConfig, tokens: Path, start: Path, work: Work) -> Metrics:
    """Trains the checkpoint `start` on pairs of a segment and its passage; writes a checkpoint.

    The checkpoint keeps the start's prediction head unchanged. It has neither the projection nor a Condenser head,
    which would no longer match the trained backbone. With `config.checkpoint`, or without a budget, that checkpoint
    or the start passes through unchanged.
    """
    check_ict(config, tokens, start)
    prepare = "pipeline.pretrain.inverse_cloze:prepare_ict"
    return launch_pretraining(prepare, config, tokens, start, work, partial(update_tokens, config))


def update_tokens(config: IctConfig, data: Tokens) -> float:
    """Returns about the mean tokens of an update, over all ranks: a segment's length is between its limits."""
    passage = np.minimum(data.passages.lengths + 2, config.passage_tokens).mean()
    return config.batch_passages * float(passage + min((config.segment_min + config.segment_tokens) / 2, passage))


def prepare_ict(config: dict[str, Any], start: Path, tokens: Path, machine: Machine, device: str) -> "Training":
    """Prepares the training, on one rank (pipeline/pretrain/train.py)."""
    import torch

    from pipeline.modeling.checkpoint import head_objective, with_new_head, with_own_head
    from pipeline.modeling.cross_entropy import inverse_cloze
    from pipeline.modeling.inputs import unread_metrics
    from pipeline.pretrain.batches import packed
    from pipeline.pretrain.objectives import objective
    from pipeline.pretrain.step import Contrast, update
    from pipeline.pretrain.train import Training
    from pipeline.training.memory import resolve_auto

    own = IctConfig.model_validate(config)
    if not own.trains:
        return Training(own, with_own_head(start, None), head_objective(start))

    data = Tokens.open(tokens)
    passages = usable_passages(own, data.passages)
    batches, rows = sampler(np.ones_like(passages.row_P), own.batch_passages, own.seed, "ict.batch_passages")

    module = with_new_head(start, 0, own.seed)
    lm: Any = module["lm"]
    projection = torch.nn.Linear(lm.config.hidden_size, own.projection, bias=False)
    lm._init_weights(projection)
    module["projection"] = projection
    module = module.to(device).requires_grad_(False)  # weight decay must not change weights without a loss
    lm.base_model.requires_grad_(True)
    projection.requires_grad_(True)
    most_tokens = own.batch_passages * (own.segment_tokens + own.passage_tokens)
    machine = resolve_auto(machine, device, lm.config, module, most_tokens)
    contrast = Contrast("ict", inverse_cloze, projection)
    limits = own.segment_min - 2, own.segment_tokens - 2, own.passage_tokens - 2, own.remove_probability

    def prepare(i: int) -> "Batch":
        at_T, length_S = pairs(data.passages, passages.row_P[rows(i)], *limits, own.seed, i)
        ids_T = data.passages.tokens[at_T].astype(np.int64)
        return packed(ids_T, ids_T, np.zeros(len(ids_T), bool), length_S, data.specials, machine, device)

    def step(i: int, batch: "Batch") -> dict[str, Any]:
        return update(
            module,
            batch,
            objective("contrastive_only"),
            skip_from=0,
            pairs=True,
            contrast=contrast,
            cache=machine.gradient_cache,
            key=(own.seed, i),
            device=device,
        )

    length_P = data.passages.lengths[passages.row_P]
    counts = {
        "passages": len(data.passages),
        "passages_one_sentence": passages.one_sentence,
        "passages_without_segment": passages.no_segment,
        **unread_metrics("passages", np.maximum(0, length_P + 2 - own.passage_tokens), length_P),
    }
    return Training(own, module, "ict", updates(own, batches, 0.0), prepare, step, counts)
