"""The training that Condenser, coCondenser and the Inverse Cloze Task share, in a child process
(`pipeline.runtime.launch`).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from torch import nn

from pipeline.modeling.packing import Batch
from pipeline.pretrain.config import PretrainConfig
from pipeline.pretrain.step import finish
from pipeline.runtime.work import Machine, Metrics, Progress
from pipeline.training import loop


class Training(NamedTuple):
    """A prepared training, on one rank."""

    config: PretrainConfig
    module: nn.ModuleDict
    """`lm`: the backbone with its prediction head; `head`: the Condenser head's layers, or none."""
    objective: str
    """What the head was trained for; written with the checkpoint."""
    steps: int = 0
    """Updates."""
    prepare: Callable[[int], Batch] | None = None
    """prepare(i) returns the batch of update i."""
    step: Callable[[int, Batch], Mapping[str, Any]] | None = None
    """step(i, batch) computes the gradients of update i (`loop.train`). None: the module is written as it is."""
    counts: Mapping[str, float] = {}
    """Further metrics."""


def train_objective(
    *,
    progress: Progress,
    device: str,
    prepare: str,
    config: dict[str, Any],
    tokens: str,
    start: str,
    tokenizer: str,
    out: str,
    checkpoints: str,
    machine: dict[str, Any],
) -> Metrics:
    """Trains what `prepare` (`module:name`) returns, and writes the checkpoint `out` with the files of `tokenizer`.

    `prepare(config, start, tokens, machine, device)` returns a `Training`.
    """
    machine_settings = Machine.model_validate(machine)
    training: Training = resolve_name(prepare)(config, Path(start), Path(tokens), machine_settings, device)
    history: list[dict[str, float]] = []
    if training.step is not None:
        history = loop.train(
            training.module,
            training.step,
            training.steps,
            training.config.optimiser,
            training.config.seed,
            Path(checkpoints),
            machine_settings.checkpoint_minutes,
            progress,
            device,
            prepare=training.prepare,
        )
    return {**training.counts, **finish(training.module, training.objective, Path(out), Path(tokenizer), history)}
