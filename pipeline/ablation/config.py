"""The configuration of an ablation's table."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.evaluate.measure_name import Measure
from pipeline.evaluate.significance import Test

if TYPE_CHECKING:
    pass


Negatives = Literal["none", "bm25", "mined", "fusion"]
"""What a column shows, in the tables' order: the model before fine-tuning, after stage 1, after the last stage 2, and
BM25 joined with the last of these."""


UNTUNED: Negatives = "none"
"""The column that hangs on no training questions and no seed of fine-tuning."""


SEEDED = tuple(f"{stage}.{field}" for stage in ("stage1", "stage2") for field in ("seed", "optimiser.seed"))
"""Fields of the recipe that an ablation's seed gives."""


class CellConfig(Config):
    """A model that was trained and measured."""

    row: str
    size: int | None
    """Training questions; None: all."""
    seed: Seed
    """Of fine-tuning."""
    systems: dict[Negatives, str]
    """The evaluation's runs by column. `none` is of one of a row's cells: fine-tuning does not change it."""
    epochs: int = Field(ge=1)
    """Of stage 1, for its curves."""
    command: list[str]
    """The words of the command that makes it alone, for the page."""
    start: str | None
    """The row whose pre-trained model it goes on from, for the page."""


class AblationConfig(Config):
    title: str = Field(min_length=1)
    """The page's heading."""
    reference: str
    """The row that the others are tested against."""
    measures: list[Measure] = Field(min_length=1)
    """What the table and the page show; the files have all measures of the evaluation."""
    test: Test
    """Of differences, paired by question (pipeline/evaluate/significance.py)."""
    samples: int = Field(ge=100, le=1_000_000)
    """Resamples of the questions, for intervals over several seeds, of differences, and the randomisation test."""
    seed: Seed
    """Of the resamples."""
    cells: list[CellConfig] = Field(min_length=1)
    """In the table's order; the evaluation of cell n is the input `evaluate_n`."""
