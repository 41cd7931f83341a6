"""What the trainings of encoders share: where they run, their frame, and the merge with the start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from pipeline.adapt.config import AdaptConfig, BothEncodersConfig, QueryEncoderConfig
from pipeline.finetune.merge import set_weights
from pipeline.modeling.biencoder import Encoder
from pipeline.runtime.work import Machine, Progress
from pipeline.training import loop
from pipeline.training.memory import encoding_budget


@dataclass(frozen=True)
class Training:
    """Where and how a model is trained."""

    config: AdaptConfig
    checkpoint: Path
    """The model as it is."""
    out: Path
    checkpoints: Path
    machine: Machine
    device: str
    progress: Progress

    def budget(self, encoder: Encoder) -> int:
        """Returns the tokens of a pass that only encodes, with the memory that is free now."""
        return encoding_budget(self.machine.token_budget, self.device, encoder.model.config)


def train_and_merge(
    training: Training,
    settings: QueryEncoderConfig | BothEncodersConfig,
    encoders: Sequence[Encoder],
    trained: nn.Module,
    step: Callable[[int, Any], Mapping[str, Any]],
    prepare: Callable[[int], Any] | None = None,
) -> None:
    """Changes the weights of `trained` to those that `step` trains, merged with those that it has.

    `encoders`: those of `trained`. `step`, `prepare`: see `loop.train`. Resumes from the newest checkpoint.
    """
    start = {name: x.clone() for name, x in trained.state_dict().items()}
    for one in encoders:
        loop.set_dropout(one.model, 0)
    loop.train(
        trained,
        step,
        settings.steps,
        settings.optimiser,
        training.config.seed,
        training.checkpoints,
        training.machine.checkpoint_minutes,
        training.progress,
        training.device,
        prepare=prepare,
    )
    tuned = {name: x.clone() for name, x in trained.state_dict().items()}
    set_weights(trained, tuned, start, training.config.merge)
    trained.zero_grad(set_to_none=True)  # frees their memory
    for one in encoders:
        one.model.eval()
