"""Pre-trainings of the tests, in this process."""

from pathlib import Path
from typing import Any

import torch
from machines import SINGLE
from safetensors.torch import load_file

from pipeline.pretrain.cocondenser import CocondenserConfig
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.pretrain.config import PretrainConfig
from pipeline.pretrain.inverse_cloze import IctConfig
from pipeline.pretrain.train import train_objective
from pipeline.runtime.work import Metrics, Progress, silent

MACHINE: dict[str, Any] = {**SINGLE, "gradient_cache_chunk": 5}
PREPARE = {
    CondenserConfig: "pipeline.pretrain.condenser:prepare_condenser",
    CocondenserConfig: "pipeline.pretrain.cocondenser:prepare_cocondenser",
    IctConfig: "pipeline.pretrain.inverse_cloze:prepare_ict",
}


def pretrain(
    config: PretrainConfig,
    given: tuple[Path, Path],
    out: Path,
    start: Path | None = None,
    machine: dict[str, Any] | None = None,
    progress: Progress = silent,
) -> Metrics:
    """Runs the stage's training from `start` or from the second of `given` (tokens, a checkpoint with a tokenizer)."""
    tokens, first = given
    return train_objective(
        prepare=PREPARE[type(config)],
        progress=progress,
        device="cpu",
        config=config.model_dump(mode="json"),
        tokens=str(tokens),
        start=str(config.checkpoint or start or first),
        tokenizer=str(first),
        out=str(out),
        checkpoints=str(out.with_suffix(".checkpoints")),
        machine=MACHINE | (machine or {}),
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The checkpoint's weights, with those of its head."""
    head = {f"head.{name}": x for name, x in load_file(folder / "head.safetensors").items()}
    return load_file(folder / "model.safetensors") | head
