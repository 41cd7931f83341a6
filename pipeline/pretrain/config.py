"""What the configurations of all pre-training stages share: budget, seed, optimiser. Imports nothing heavy."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from pipeline.config import Config, Seed
from pipeline.training.loop import Optimiser


class Amount(NamedTuple):
    """A budget as numbers."""

    number: float
    unit: str
    """`steps` (updates), `epochs` or `tokens`."""


def read_budget(budget: str) -> Amount:
    """Reads a budget such as `8 epochs`. Raises ValueError."""
    number, _, unit = budget.strip().partition(" ")
    unit = f"{unit.strip().removesuffix('s')}s"  # `1 epoch` too
    try:
        amount = Amount(float(number) if unit == "epochs" else int(number), unit)
    except ValueError:
        amount = Amount(0, unit)
    if unit not in ("steps", "epochs", "tokens") or not 0 < amount.number < float("inf"):
        raise ValueError("a number and its unit are expected, such as `300 steps`, `8 epochs` or `20_000_000 tokens`")
    return amount


def _canonical(budget: Any) -> str:
    amount = read_budget(str(budget))
    return f"{amount.number:.12g} {amount.unit}" if amount.unit == "epochs" else f"{amount.number} {amount.unit}"


Budget = Annotated[str, BeforeValidator(_canonical)]
"""The length of a training, with its unit."""


class PretrainConfig(Config):
    budget: Budget | None
    """The length of the training: steps (updates), epochs (passes over the text) or tokens read, special tokens
    included. null: no training; the start passes through unchanged."""
    checkpoint: Path | None
    """A finished checkpoint, used instead of training. null: train."""
    seed: Seed
    """Seed of everything random in the training: order, spans, masks, dropout, new weights."""
    optimiser: Optimiser

    @property
    def trains(self) -> bool:
        """Whether there is anything to train."""
        return self.budget is not None and self.checkpoint is None


def updates(config: PretrainConfig, batches: int, mean_tokens: float) -> int:
    """Returns the updates of a training that has a budget. `batches`: in an epoch; `mean_tokens`: in a batch."""
    assert config.budget is not None
    number, unit = read_budget(config.budget)
    if unit == "steps":
        return int(number)
    return max(1, round(number * batches if unit == "epochs" else number / mean_tokens))
