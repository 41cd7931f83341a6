"""Condenser pre-training (Condenser, section 3), or another objective on the same batches."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from pipeline.advice import Changes
from pipeline.pretrain.blocks import cut_documents
from pipeline.pretrain.config import PretrainConfig, updates
from pipeline.pretrain.sampling import batches_in, sampler
from pipeline.pretrain.start import LARGE, check_inputs, check_start, check_tokens, launch_pretraining, unfit
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Machine, Metrics, Work
from pipeline.tokenization.token_files import Tokens
from pipeline.training.loop import exactly_one

if TYPE_CHECKING:
    from pipeline.modeling.packing import Batch
    from pipeline.pretrain.train import Training


class CondenserConfig(PretrainConfig):
    """An epoch of the budget is a pass over the blocks. 8 in the authors' code; the gain diminishes after 4."""

    objective: Literal["condenser", "mlm", "retromae"]
    """The training objective: Condenser; for comparison, plain masked language modelling or RetroMAE."""
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
    head_layers: int = Field(ge=0)
    """Transformer layers of the Condenser head: 2 (Condenser, section 4.1). RetroMAE's decoder has 1, `mlm` none."""
    skip_from: int = Field(ge=0)
    """Backbone layer whose output goes to the head (0: the embeddings). 6 of 12 (Condenser, section 4.1)."""
    continued: bool
    """Continue with the head of the start, which must have one (pre-training on the target collection). False: a random
    head."""

    @model_validator(mode="after")
    def _consistent(self) -> "CondenserConfig":
        exactly_one(self, "batch_blocks", "batch_tokens")
        fitting = {"condenser": self.head_layers >= 1, "mlm": self.head_layers == 0, "retromae": self.head_layers == 1}
        if not fitting[self.objective]:
            raise ValueError(f"head_layers ({self.head_layers}) does not go with the objective {self.objective}")
        if self.continued and not self.head_layers:
            raise ValueError(f"continued needs a head, but the objective {self.objective} has none")
        if self.batch_tokens is not None and self.batch_tokens < self.length:
            raise ValueError(f"batch_tokens ({self.batch_tokens}) is below length ({self.length})")
        return self


def check_condenser(config: CondenserConfig, tokens: Path, start: Path | None) -> None:
    """InputError where the stage will fail with these tokens and a start of that shape; called early.

    `start`: None where it is not there yet. For tokens that are too few the error has values that fit.
    """
    if start is not None:
        check_start("condenser", config.checkpoint or start, tokens, config.skip_from, config.length, config.objective)
    check_tokens("condenser", config, tokens, check_batch, smaller)


def check_planned(node: Planned) -> None:
    """An early check."""
    check_inputs(node, check_condenser)


def check_batch(config: CondenserConfig, data: Tokens) -> None:
    """Raises InputError if an epoch has no full batch; does not check a LARGE collection."""
    if len(data.passages.tokens) < LARGE:
        batches_in(*sizes(config, cut_blocks(config, data)[1]))


def smaller(config: CondenserConfig, data: Tokens) -> Iterator[Changes]:
    """Yields changes for a small collection: at most four batches per epoch, in tokens, then in blocks; no training."""
    length_N = cut_blocks(config, data)[1]
    if config.batch_tokens is not None:
        yield {"batch_tokens": max(config.length, int((length_N + 2).sum()) // 4)}
    yield {"batch_tokens": None, "batch_blocks": max(1, len(length_N) // 4)}
    yield {"budget": None}


def cut_blocks(config: CondenserConfig, data: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Returns begin and length of the collection's N blocks, without special tokens."""
    assert data.passages.sentence_starts is not None
    documents = data.passages.offsets[data.doc_offsets]
    seed = config.seed
    return cut_documents(data.passages.sentence_starts, documents, config.length - 2, config.short_probability, seed)


def sizes(config: CondenserConfig, length_N: np.ndarray) -> tuple[np.ndarray, int, str]:
    """Returns the size of each block in a batch, the size of a batch, and the field that sets it."""
    if config.batch_tokens is not None:
        return length_N + 2, config.batch_tokens, "condenser.batch_tokens"
    return np.ones_like(length_N), config.batch_blocks or 0, "condenser.batch_blocks"


def missing(config: CondenserConfig) -> list[str]:
    """Returns a line if the stage cannot use its finished checkpoint; no line if it can, or if there is none."""
    needs_head = config.head_layers > 0
    return unfit("condenser", config.checkpoint, config.skip_from, config.length, config.objective, needs_head)


def condenser(config: CondenserConfig, tokens: Path, start: Path, work: Work) -> Metrics:
    """Trains the checkpoint `start` on blocks of the passages of `tokens`; writes a checkpoint with its head.

    With `config.checkpoint`, that checkpoint passes through unchanged if it has a head and fits the tokens.
    """
    check_condenser(config, tokens, start)
    prepare = "pipeline.pretrain.condenser:prepare_condenser"
    return launch_pretraining(prepare, config, tokens, start, work, partial(update_tokens, config))


def update_tokens(config: CondenserConfig, data: Tokens) -> float:
    """Returns about the mean tokens of an update, over all ranks; takes the blocks of a LARGE collection as full."""
    if config.batch_tokens is not None:
        return float(config.batch_tokens)
    block = float(config.length)
    if len(data.passages.tokens) < LARGE:
        block = float((cut_blocks(config, data)[1] + 2).mean())
    return (config.batch_blocks or 0) * block


def prepare_condenser(config: dict[str, Any], start: Path, tokens: Path, machine: Machine, device: str) -> "Training":
    """Prepares the training, on one rank (pipeline/pretrain/train.py)."""
    from pipeline.modeling.checkpoint import with_new_head, with_own_head
    from pipeline.pretrain.masking import masked_batch
    from pipeline.pretrain.objectives import objective
    from pipeline.pretrain.step import update
    from pipeline.pretrain.train import Training
    from pipeline.training.memory import resolve_auto

    own = CondenserConfig.model_validate(config)
    if (own.continued or own.checkpoint is not None) and own.head_layers:
        module = with_own_head(start, own.objective, own.head_layers).to(device)
    else:
        module = with_new_head(start, own.head_layers, own.seed).to(device)
    if not own.trains:
        return Training(own, module, own.objective)

    machine = resolve_auto(machine, device, module["lm"].config, module)
    data = Tokens.open(tokens)
    begin_N, length_N = cut_blocks(own, data)
    size_N, batch_size, field = sizes(own, length_N)
    batches, rows = sampler(size_N, batch_size, own.seed, field)

    def prepare(i: int) -> "Batch":
        row_S = rows(i)
        sequences = begin_N[row_S], length_N[row_S], row_S
        fraction = own.mask_fraction
        return masked_batch(data.passages, *sequences, fraction, own.seed, i, data.specials, machine, device)

    def step(i: int, batch: "Batch") -> dict[str, Any]:
        return update(
            module,
            batch,
            objective(own.objective),
            skip_from=own.skip_from,
            pairs=False,
            cache=machine.gradient_cache,
            key=(own.seed, i),
            device=device,
        )

    steps = updates(own, batches, float((length_N + 2).sum()) / batches)
    counts = {"documents": len(data.doc_offsets) - 1, "blocks": len(begin_N)}
    return Training(own, module, own.objective, steps, prepare, step, counts)
