"""The training loop that pre-training and fine-tuning share: read it from top to bottom."""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.work import Metrics, Progress

if TYPE_CHECKING:
    import torch

BAD_UPDATES = 10
"""Updates in a row without a finite loss and gradient after which a training stops."""
CUDA_INTERVAL = 20
"""Updates between two looks at a GPU's figures; the host does not wait for it in between."""
FIGURES = 16
"""Most loss parts that a step may return."""


class Optimiser(Config):
    """AdamW with linear warm-up and linear decay to zero (Condenser, section 4.1)."""

    learning_rate: float = Field(gt=0)
    """Highest learning rate, at the end of the warm-up."""
    betas: tuple[float, float]
    """Decay rates of Adam's two moments."""
    epsilon: float = Field(gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = Field(ge=0)
    """Decoupled; not applied to biases and LayerNorms."""
    clip_norm: float = Field(gt=0)
    """Largest norm of the whole gradient; a longer one is scaled down."""
    warmup_ratio: float | None = Field(ge=0, le=1)
    """Share of the updates in which the learning rate rises from 0. Either this or `warmup_steps`."""
    warmup_steps: int | None = Field(ge=0)
    """Updates in which the learning rate rises from 0. Either this or `warmup_ratio`."""
    seed: int = Field(ge=0)
    """Seed of everything random in the training: order, spans, masks, dropout, new weights."""

    @model_validator(mode="after")
    def one_warmup(self) -> "Optimiser":
        exactly_one(self, "warmup_ratio", "warmup_steps")
        return self


def exactly_one(config: Config, *names: str) -> None:
    """ValueError unless one of the fields `names` is set and the others are null."""
    given = [name for name in names if getattr(config, name) is not None]
    if len(given) != 1:
        raise ValueError(f"set one of {', '.join(names)} and null for the others; set: {', '.join(given) or 'none'}")


def train(
    module: "torch.nn.Module",
    step: "Callable[[int], Mapping[str, float | torch.Tensor]]",
    steps: int,
    optimiser: Optimiser,
    checkpoints: Path,
    checkpoint_minutes: float,
    progress: Progress,
    device: str,
) -> list[dict[str, float]]:
    """Trains `module` (already on `device`) for `steps` updates; goes on from the newest checkpoint if there is one.

    step(i) runs forward and backward of update i on this rank's share of the global batch, a pure function of
    (seed, i), and leaves gradients whose sum over the ranks is the gradient of the global loss. It adds to the
    gradients in place (never sets them to None), wraps its forward passes in `autocast(device)`, and returns loss
    parts whose sum over the ranks is the global figure. A part named `tokens` also gives tokens/s.
    Dropout's random state is a function of (seed, i, rank); a step may seed it more finely with `seed_dropout`.

    An update without a finite loss and gradient is skipped and counted, on the device, so that the host need not
    wait; `InputError` after BAD_UPDATES in a row. Returns one row an update: step, learning_rate, the loss parts,
    gradient_norm (before clipping), skipped (0 or 1).
    """
    import torch

    from pipeline import distributed

    module.train()
    parameters = [p for p in module.parameters() if p.requires_grad]
    # All gradients and figures lie in one buffer: one all-reduce, one norm, one clearing.
    buffer = torch.zeros(sum(p.numel() for p in parameters) + FIGURES, device=device)
    gradient, figures = buffer[:-FIGURES], buffer[-FIGURES:]
    for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)
    decayed = [p for p in parameters if p.ndim > 1]
    plain = [p for p in parameters if p.ndim <= 1]
    adam = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": optimiser.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=0.0,
        betas=optimiser.betas,
        eps=optimiser.epsilon,
        fused=True,
    )

    first, history = restore(module, adam, checkpoints)
    names: list[str] = []
    pending: list[torch.Tensor] = []
    bad_in_a_row = torch.zeros((), device=device)
    interval = CUDA_INTERVAL if device == "cuda" else 1
    saved = looked = time.monotonic()
    for i in range(first, steps):
        rate = learning_rate(optimiser, i, steps)
        for group in adam.param_groups:
            group["lr"] = rate
        buffer.zero_()
        seed_dropout(optimiser.seed, i, distributed.rank())
        parts = step(i)
        names = list(parts)
        figures[: len(names)] = torch.stack(
            [torch.as_tensor(x, device=device).detach().float() for x in parts.values()]
        )
        distributed.add(buffer)

        norm = gradient.norm()
        bad = 1.0 - torch.isfinite(norm + figures.sum()).float()
        bad_in_a_row = (bad_in_a_row + bad) * bad
        gradient.mul_((optimiser.clip_norm / (norm + 1e-6)).clamp(max=1.0))
        adam.found_inf = bad  # type: ignore[attr-defined]  # the fused kernel leaves everything as it is where this is 1
        adam.step()
        pending.append(torch.cat([figures[: len(names)], norm[None], bad[None], bad_in_a_row[None]]))

        done = i + 1
        due = time.monotonic() - saved >= 60 * checkpoint_minutes
        if len(pending) < interval and done < steps and not due:
            continue
        for x in torch.stack(pending).tolist():
            row = {"step": len(history) + 1, "learning_rate": learning_rate(optimiser, len(history), steps)}
            history.append(row | dict(zip([*names, "gradient_norm", "skipped"], x[:-1], strict=True)))
            if x[-1] >= BAD_UPDATES:
                raise InputError(
                    f"learning_rate: {BAD_UPDATES} updates in a row, the last of them update {row['step']}, had an "
                    "infinite or undefined loss or gradient: lower it"
                )
        now = time.monotonic()
        speed = sum(row.get("tokens", 0.0) for row in history[-len(pending) :]) / max(now - looked, 1e-9)
        progress(done, steps, "updates", history[-1] | ({"tokens_per_second": speed} if speed else {}))
        pending, looked = [], now
        if due and done < steps:
            if distributed.rank() == 0:
                save(module, adam, checkpoints, done, history, device)
            saved = time.monotonic()
    return history


def summary(history: Sequence[Mapping[str, float]], losses: Iterable[str]) -> Metrics:
    """Metrics of a training: its updates, those skipped, the tokens read, and each loss's mean over the last tenth."""
    last = [row for row in history[-max(1, len(history) // 10) :] if not row["skipped"]]
    return {
        "updates": len(history),
        "updates_skipped": int(sum(row["skipped"] for row in history)),
        "tokens": int(sum(row["tokens"] for row in history)),
        **{f"{name}_last": sum(row[name] for row in last) / len(last) for name in losses if last and name in last[0]},
    }


def learning_rate(optimiser: Optimiser, i: int, steps: int) -> float:
    """Learning rate of update `i` (from 0) of `steps`: linear from 0 to the highest, then linear to 0."""
    warmup = optimiser.warmup_steps
    if warmup is None:
        warmup = math.ceil((optimiser.warmup_ratio or 0.0) * steps)
    if i < warmup:
        return optimiser.learning_rate * (i + 1) / (warmup + 1)
    return optimiser.learning_rate * (steps - i) / max(steps - warmup, 1)


def seed_dropout(*key: int) -> None:
    """Sets torch's random state to a function of `key`, such as (seed, step, chunk)."""
    import numpy as np
    import torch

    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))


def autocast(device: str) -> "AbstractContextManager[Any]":
    """bfloat16 where it pays: on CUDA. Enter it anew for each forward pass: it keeps casts of the weights."""
    import torch

    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


# Checkpoints of a training: CHECKPOINTS/step-N/{model,optimizer}.safetensors and state.json {step, ranks, threads,
# device, history}. Written under another name and renamed, so that a folder of that name is always whole.


def saved_steps(checkpoints: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    return sorted(checkpoints.glob("step-*"), key=lambda folder: int(folder.name.removeprefix("step-")))


def saved_state(checkpoints: Path) -> dict[str, Any] | None:
    """state.json of the newest checkpoint, or None."""
    folders = saved_steps(checkpoints)
    return json.loads((folders[-1] / "state.json").read_text()) if folders else None


def save(
    module: "torch.nn.Module",
    adam: "torch.optim.Optimizer",
    checkpoints: Path,
    step: int,
    history: list[dict[str, float]],
    device: str,
) -> None:
    """Writes the checkpoint after `step` updates and keeps the last two."""
    import torch
    from safetensors.torch import save as to_bytes

    from pipeline import distributed

    weights = {name: p.detach() for name, p in module.named_parameters()}
    moments = {
        f"{name}/{key}": value for name, p in module.named_parameters() for key, value in adam.state.get(p, {}).items()
    }
    state = {
        "step": step,
        "ranks": distributed.world(),
        "threads": torch.get_num_threads(),
        "device": device,
        "history": history,
    }
    checkpoints.mkdir(parents=True, exist_ok=True)
    for stale in checkpoints.glob("tmp-*"):
        shutil.rmtree(stale)
    folder = checkpoints / f"tmp-step-{step}"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(to_bytes({k: v.cpu().contiguous() for k, v in weights.items()}))
    (folder / "optimizer.safetensors").write_bytes(to_bytes({k: v.cpu().contiguous() for k, v in moments.items()}))
    (folder / "state.json").write_text(json.dumps(state))
    os.rename(folder, checkpoints / f"step-{step}")
    for old in saved_steps(checkpoints)[:-2]:
        shutil.rmtree(old)


def restore(
    module: "torch.nn.Module", adam: "torch.optim.Optimizer", checkpoints: Path
) -> tuple[int, list[dict[str, float]]]:
    """Brings `module` and `adam` to the newest checkpoint. Returns the updates done and their history."""
    import torch
    from safetensors.torch import load_file

    state = saved_state(checkpoints)
    if state is None:
        return 0, []
    folder = checkpoints / f"step-{state['step']}"
    weights = load_file(folder / "model.safetensors")
    moments = load_file(folder / "optimizer.safetensors")
    parameters = dict(module.named_parameters())
    if weights.keys() != parameters.keys():
        raise InputError(f"{folder}: holds another model's parameters; remove it")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    for name, moment in moments.items():
        parameter_name, key = name.rsplit("/", 1)
        parameter = parameters[parameter_name]
        adam.state[parameter][key] = moment.to(parameter.device, copy=True)
    return state["step"], state["history"]
