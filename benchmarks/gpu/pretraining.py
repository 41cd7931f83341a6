"""Updates of coCondenser, Condenser and RetroMAE: this project's, and the published way's with eager or SDPA attention.

Both start from the same weights and read the same batches. The published way reads batches that were padded before.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks import published
from benchmarks.gpu import inputs
from benchmarks.gpu.clock import WARM_UP, Step, Way, computed, loop_turn, pinned, plain_turn
from benchmarks.gpu.inputs import LIMIT, Size
from pipeline.modeling.packing import Batch
from pipeline.pretrain import step as pretraining
from pipeline.pretrain.masking import masked_batch
from pipeline.pretrain.objectives import objective
from pipeline.runtime.work import Machine
from pipeline.training.memory import training_budget


class Task(NamedTuple):
    """What is trained."""

    objective: str
    sequences: int
    pairs: bool
    """Whether sequences 2i and 2i + 1 are spans of one document, with the contrastive loss."""
    cache: str
    """`always` or `never`: the gradient cache."""
    updates: int
    """Of a turn."""

    @property
    def head_layers(self) -> int:
        return 1 if self.objective == "retromae" else inputs.HEAD_LAYERS


def tasks(size: Size) -> dict[str, Task]:
    """Returns the tasks by the name of their part."""
    return {
        "cocondenser_cached": Task("cocondenser", 2 * size.documents, True, "always", 2),
        "cocondenser_graphs": Task("cocondenser", 2 * size.graph_documents, True, "never", size.turn(3)),
        "condenser": Task("condenser", size.blocks, False, "never", size.turn(3)),
        "retromae": Task("retromae", size.blocks, False, "never", size.turn(3)),
    }


class Batches:
    """Batches of random text; batch i is the same at every call."""

    def __init__(self, task: Task, size: Size) -> None:
        self.task, self.texts, self.specials = task, inputs.texts(size), inputs.specials(size)

    def __call__(self, i: int, machine: Machine, device: str) -> Batch:
        """Masks and packs batch i, as in training."""
        rng, sequences = np.random.default_rng(i), self.task.sequences
        length_S = inputs.span_lengths(sequences, rng) if self.task.pairs else np.full(sequences, LIMIT - 2)
        begin_S = rng.integers(0, len(self.texts.tokens) - LIMIT, sequences)
        numbers_S = np.arange(sequences)
        return masked_batch(self.texts, begin_S, length_S, numbers_S, 0.15, 0, i, self.specials, machine, device)


def budget(module: nn.ModuleDict, device: str) -> int:
    """Returns the tokens of a chunk, as `token_budget: auto` decides."""
    lm: Any = module["lm"]
    return training_budget("auto", device, lm.config, module)


def our_step(task: Task, size: Size, module: nn.ModuleDict, device: str) -> Step:
    """Returns this project's step: masks, packs, forward and backward."""
    lm: Any = module["lm"]
    machine = inputs.machine(device, token_budget=budget(module, device))
    batches, goal, skip_from = Batches(task, size), objective(task.objective), lm.config.num_hidden_layers // 2

    def step(i: int, batch: Batch) -> Mapping[str, Any]:
        return pretraining.update(
            module,
            batch,
            goal,
            skip_from=skip_from,
            pairs=task.pairs,
            cache=task.cache,
            key=(0, i),
            device=device,
        )

    return Step(lambda i: batches(i, machine, device), step)


def ours(task: Task, size: Size, device: str) -> Way:
    module = inputs.language_model(size, task.head_layers, device)
    step = our_step(task, size, module, device)
    return Way(lambda: loop_turn(module, step, task.updates, device), lambda: computed(module, step.whole))


def theirs(task: Task, size: Size, device: str, attention: str) -> Way:
    """The published way. `attention`: `eager` or `sdpa`."""
    module = inputs.language_model(size, task.head_layers, device)
    lm: Any = module["lm"]
    adam = torch.optim.AdamW(module.parameters(), lr=1e-6, fused=True)
    batches, machine = Batches(task, size), inputs.machine("cpu", token_budget=100_000)
    padded = [
        _pinned(published.padded(batches(i, machine, "cpu"), LIMIT, inputs.specials(size).pad), device)
        for i in range(WARM_UP + task.updates)
    ]
    update = published.cocondenser if task.pairs else published.condenser

    def step(i: int) -> torch.Tensor:
        batch = published.Padded(*(x.to(device, non_blocking=True) for x in padded[i]))
        return update(module, batch, lm.config.num_hidden_layers // 2, size.chunk, attention)

    return Way(lambda: plain_turn(module, step, adam, task.updates, device), lambda: computed(module, step))


def _pinned(batch: published.Padded, device: str) -> published.Padded:
    return published.Padded(*(pinned(x, device) for x in batch))
