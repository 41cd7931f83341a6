"""The training loop that pre-training and fine-tuning share: read it from top to bottom."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from pipeline.config import Config, DropoutShare
from pipeline.errors import LESS_MEMORY, InputError
from pipeline.runtime.work import Metrics, Progress

if TYPE_CHECKING:
    import torch

BAD_UPDATES = 10
"""Consecutive updates without a finite loss and gradient after which a training stops."""
CUDA_INTERVAL = 20
"""Updates between two reads of a GPU's figures; the host does not wait for it in between."""
DIVERGED = "had an infinite or undefined loss or gradient: lower it, or raise a temperature that is near 0"
FIGURES = 16
"""Most loss parts that a step may return."""
LIVE = ("padding", "operations")
"""Parts of a step that appear in its progress and not in its history."""
OUT_OF_MEMORY = ("can't allocate memory", "MPS backend out of memory")
"""Parts of the messages of errors that have no class of their own."""
NO_LOSSES = ("step", "learning_rate", "tokens", "gradient_norm", "skipped")
"""Columns of a history that are not loss parts."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimiser(Config):
    """AdamW with linear warm-up and linear decay to zero (Condenser, section 4.1)."""

    learning_rate: float = Field(gt=0)
    """Highest learning rate, at the end of the warm-up."""
    betas: tuple[Beta, Beta]
    """Decay rates of Adam's two moments."""
    epsilon: float = Field(gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = Field(ge=0)
    """Decoupled; not applied to biases and LayerNorms."""
    clip_norm: float = Field(gt=0)
    """Largest norm of the whole gradient; a larger gradient is scaled down."""
    warmup_ratio: float | None = Field(ge=0, le=1)
    """Share of the updates in which the learning rate rises from 0. Either this or `warmup_steps`."""
    warmup_steps: int | None = Field(ge=0)
    """Updates in which the learning rate rises from 0. Either this or `warmup_ratio`."""

    @model_validator(mode="after")
    def one_warmup(self) -> "Optimiser":
        exactly_one(self, "warmup_ratio", "warmup_steps")
        return self


def exactly_one(config: Config, *names: str) -> None:
    """Raises ValueError unless exactly one of the fields `names` is set and the others are null."""
    fields = [name for name in names if getattr(config, name) is not None]
    if len(fields) != 1:
        raise ValueError(f"set one of {', '.join(names)} and null for the others; set: {', '.join(fields) or 'none'}")


@contextmanager
def named_memory() -> Iterator[None]:
    """Raises InputError, which names the fields to change, if the block runs out of memory."""
    import torch

    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not isinstance(error, torch.OutOfMemoryError) and not any(part in str(error) for part in OUT_OF_MEMORY):
            raise
        raise InputError(f"out of memory: {LESS_MEMORY} ({str(error).splitlines()[0]})") from error


@named_memory()
def train(
    module: "torch.nn.Module",
    step: "Callable[[int, Any], Mapping[str, float | torch.Tensor]]",
    steps: int,
    optimiser: Optimiser,
    seed: int,
    checkpoints: Path,
    checkpoint_minutes: float,
    progress: Progress,
    device: str,
    before: "Callable[[int], None] | None" = None,
    prepare: "Callable[[int], Any] | None" = None,
    ahead: bool = True,
) -> list[dict[str, float]]:
    """Trains `module` (already on `device`) for `steps` updates; resumes from the newest checkpoint if there is one.

    step(i, prepare(i)) runs forward and backward of update i on this rank's share of the global batch, a pure function
    of (seed, i), and leaves gradients whose sum over the ranks is the gradient of the global loss, `scaled`. It adds to
    the gradients in place (never sets them to None), wraps its forward passes in `autocast(device)`, and returns loss
    parts whose sum over the ranks is the global figure. Three names are special: `tokens` gives tokens/s, `padding`
    (padded rows, in addition to the tokens) a share, `operations` (pipeline/training/flops.py) the utilisation.
    Dropout's random state is a function of (seed, i, rank); a step may seed it more finely with `seed_dropout`.
    before(i) runs before update i, for example to validate: its time does not count as an update's.
    prepare(i) returns the batch of update i (None: `step` gets None). On a GPU a thread prepares it during the update
    before, unless `ahead` is False: for batches that depend on the trained weights, or wait for other processes.

    An update without a finite loss and gradient is skipped and counted, on CUDA by the device, so that the host need
    not wait. Raises `InputError` after BAD_UPDATES such updates in a row, or if all updates are skipped. Returns a row
    per update: step, learning_rate, the loss parts, gradient_norm (before clipping), skipped (0 or 1).
    """
    import torch

    from pipeline.runtime import ranks
    from pipeline.runtime.checkpoints import restore, save_state
    from pipeline.runtime.precision import low_precision
    from pipeline.training import flops
    from pipeline.training.gradients import BUCKET, GradientSum, gradient_buffer, use_gradient_sum
    from pipeline.training.loss_scale import LossScale, use_loss_scale

    module.train()
    parameters = [p for p in module.parameters() if p.requires_grad]
    # All gradients and figures share one buffer: one norm, one clearing, few sums over the ranks.
    buffer = gradient_buffer(parameters, FIGURES, device)
    gradient, figures = buffer[:-FIGURES], buffer[-FIGURES:]
    gradient_sum = GradientSum(parameters, buffer, BUCKET if device == "cuda" else None)
    use_gradient_sum(gradient_sum)
    adam = adamw(parameters, optimiser)

    first, history = restore(module, adam, checkpoints)
    # One GPU of the older kind is enough: the ranks sum their gradients.
    half = ranks.sum_over_ranks(torch.tensor(float(low_precision(device) == torch.float16)))
    scale = LossScale(device, [row["skipped"] for row in history]) if half else None
    use_loss_scale(scale)
    names: list[str] = []
    pending: list[torch.Tensor] = []
    bad_in_a_row = torch.zeros((), device=device)
    interval = CUDA_INTERVAL if device == "cuda" else 1
    peak = flops.peak(device)
    started_at = saved_at = read_at = time.monotonic()
    batches = prepared_batches(prepare, range(first, steps), device if ahead else "cpu")
    for i in range(first, steps):
        rate = learning_rate(optimiser, i, steps)
        for group in adam.param_groups:
            group["lr"] = rate
        if before is not None:
            paused_at = time.monotonic()
            before(i)
            read_at += time.monotonic() - paused_at
        buffer.zero_()
        seed_dropout(seed, i, ranks.rank())
        parts = step(i, next(batches))
        names = list(parts)
        figures[: len(names)] = together(list(parts.values()), device)
        gradient_sum.finish()

        if scale is not None:
            gradient.div_(scale.value)
        norm = gradient.norm()
        bad = 1.0 - torch.isfinite(norm + figures.sum()).float()
        bad_in_a_row = (bad_in_a_row + bad) * bad
        if scale is not None:
            scale.update(bad)
        step_unless(bad, adam, gradient, (optimiser.clip_norm / (norm + 1e-6)).clamp(max=1.0), device)
        torch.autograd.graph.increment_version(parameters)  # the fused kernel does not; cast copies depend on it
        pending.append(torch.cat([figures[: len(names)], norm[None], bad[None], bad_in_a_row[None]]))

        done = i + 1
        due = time.monotonic() - saved_at >= 60 * checkpoint_minutes
        if len(pending) < interval and done < steps and not due:
            continue
        live = dict.fromkeys(("tokens", *LIVE), 0.0)
        for x in torch.stack(pending).tolist():
            figure = dict(zip([*names, "gradient_norm", "skipped"], x[:-1], strict=True))
            row = {name: value for name, value in figure.items() if name not in LIVE}
            rate = learning_rate(optimiser, len(history), steps)
            history.append({"step": len(history) + 1, **row, "learning_rate": rate})
            live = {name: total + figure.get(name, 0.0) for name, total in live.items()}
            if x[-1] >= BAD_UPDATES:
                last = f"the last of them update {len(history)}"
                raise InputError(f"optimiser.learning_rate: {BAD_UPDATES} updates in a row, {last}, {DIVERGED}")
        now = time.monotonic()
        # A peak measured on a busy core is too low, so a faster update raises it.
        peak = peak and max(peak, live["operations"] / (now - read_at) / ranks.world())
        rates = speeds(**live, seconds=now - read_at, peak=peak and peak * ranks.world())
        left = (now - started_at) / (done - first) * (steps - done)
        progress(done, steps, "updates", history[-1] | rates | {"seconds_left": left})
        pending, read_at = [], now
        if due and done < steps:
            if ranks.rank() == 0:
                save_state(module, adam, checkpoints, done, history, device)
            saved_at = time.monotonic()
    if history and all(row["skipped"] for row in history):
        raise InputError(f"optimiser.learning_rate: all {len(history)} updates {DIVERGED}")
    return history


def prepared_batches(prepare: "Callable[[int], Any] | None", updates: range, device: str) -> Iterator[Any]:
    """Yields prepare(i) of each update; on CUDA a thread computes it during the update before."""
    from pipeline.modeling.passes import one_ahead

    if prepare is None:
        yield from itertools.repeat(None)
    else:
        with one_ahead(prepare, updates, device) as batches:
            yield from batches


def between_epochs(after: "Callable[[int, int], None] | None", updates: int) -> "Callable[[int], None]":
    """Returns a `before` for `train` that calls after(epochs, updates done) after each epoch of `updates` updates."""

    def before(i: int) -> None:
        if after is not None and i and not i % updates:
            after(i // updates, i)

    return before


def adamw(parameters: "Sequence[torch.nn.Parameter]", optimiser: Optimiser) -> "torch.optim.AdamW":
    """Returns fused AdamW with learning rate 0; no weight decay for biases and LayerNorms."""
    import torch

    decayed = [p for p in parameters if p.ndim > 1]
    plain = [p for p in parameters if p.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": optimiser.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=0.0,
        betas=optimiser.betas,
        eps=optimiser.epsilon,
        fused=True,
    )


def step_unless(
    bad: "torch.Tensor", adam: "torch.optim.AdamW", gradient: "torch.Tensor", factor: "torch.Tensor", device: str
) -> None:
    """Scales the gradient by `factor` (on CUDA within AdamW's kernel) and updates the weights.

    If `bad` is 1, weights and moments stay as they are. `gradient` holds the gradients of all parameters.
    """
    if device == "cuda":
        adam.grad_scale = factor.reciprocal()  # type: ignore[attr-defined]  # the fused kernel divides by it
    else:
        gradient.mul_(factor)
    if device != "mps":
        adam.found_inf = bad  # type: ignore[attr-defined]  # if this is 1, the fused kernel changes nothing
        adam.step()
    elif not bad.item():  # MPS's kernel ignores it in some versions of PyTorch (pull request 186360)
        adam.step()


def speeds(tokens: float, padding: float, operations: float, seconds: float, peak: float | None) -> dict[str, float]:
    """Returns the speed of updates that took `seconds` together. `peak`: operations per second of all devices."""
    if not tokens:
        return {}
    figures = {"tokens_per_second": tokens / seconds, "padding": padding / (tokens + padding)}
    return figures | ({"mfu": operations / seconds / peak} if peak and operations else {})


def loss_columns(columns: Iterable[str]) -> list[str]:
    """Returns the columns of a history that are loss parts."""
    return [name for name in columns if name not in NO_LOSSES]


def history_metrics(history: Sequence[Mapping[str, float]]) -> Metrics:
    """Returns a training's metrics: updates, skipped updates, tokens, and each loss's mean over the last tenth."""
    last = [row for row in history[-max(1, len(history) // 10) :] if not row["skipped"]]
    return {
        "updates": len(history),
        "updates_skipped": int(sum(row["skipped"] for row in history)),
        "tokens": int(sum(row["tokens"] for row in history)),
        **{
            f"{name}_last": sum(row[name] for row in last) / len(last) for name in loss_columns(last[0] if last else ())
        },
    }


def learning_rate(optimiser: Optimiser, i: int, steps: int) -> float:
    """Returns the learning rate of update `i` (from 0) of `steps`: linear from 0 to the highest, then linear to 0."""
    warmup = optimiser.warmup_steps
    if warmup is None:
        warmup = math.ceil((optimiser.warmup_ratio or 0.0) * steps)
    if i < warmup:
        return optimiser.learning_rate * (i + 1) / (warmup + 1)
    return optimiser.learning_rate * (steps - i) / max(steps - warmup, 1)


def set_dropout(model: "torch.nn.Module", share: DropoutShare) -> None:
    """Sets the probability of each dropout layer to `share`; `checkpoint` keeps the model's own."""
    import torch

    from pipeline.modeling.architectures.registry import architecture

    if share == "checkpoint":
        return
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = share
    architecture(model).set_attention_dropout(model, share)


def seed_dropout(*key: int) -> None:
    """Sets torch's random state to a function of `key`, such as (seed, step, chunk).

    Only that of the processor and of this rank's GPU: `torch.manual_seed` looks at every kind of device, which takes
    longer than the dropout of a small chunk.
    """
    import numpy as np
    import torch

    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def together(parts: "Sequence[float | torch.Tensor]", device: str) -> "torch.Tensor":
    """Returns numbers and one-element tensors as one float32 tensor; on CUDA the host does not wait for the device."""
    import numpy as np
    import torch

    from pipeline.modeling.packing import upload

    known = upload(np.array([0.0 if isinstance(x, torch.Tensor) else x for x in parts], np.float32), device)
    pairs = zip(parts, known, strict=True)
    return torch.stack([part.detach().float() if isinstance(part, torch.Tensor) else number for part, number in pairs])
