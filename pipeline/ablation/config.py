"""The configuration of an ablation's table."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.evaluate.config import Measure
from pipeline.evaluate.significance.paired import Test

if TYPE_CHECKING:
    pass


Negatives = Literal["none", "bm25", "mined", "fusion"]
"""Columns in the tables' order: the model before fine-tuning, after stage 1, after the last stage 2, and the fusion of
BM25 with the last of these."""


UNTUNED: Negatives = "none"
"""The column that depends neither on training questions nor on the seed of fine-tuning."""


SEEDED = ("stage1.seed", "stage2.seed")
"""Fields of the recipe that an ablation's seed sets."""


class CellConfig(Config):
    """A trained and measured model."""

    row: str
    size: int | None
    """Training questions; None: all."""
    seed: Seed
    """Seed of fine-tuning."""
    systems: dict[Negatives, str]
    """The evaluation's runs by column. Only one cell of a row has `none`: fine-tuning does not change it."""
    epochs: int = Field(ge=1)
    """Epochs of stage 1, for its curves."""
    command: list[str]
    """The command that builds only this cell, as a list of arguments, for the page."""
    start: str | None
    """The row whose pre-trained model it starts from, for the page."""


class AblationConfig(Config):
    title: str = Field(min_length=1)
    """The page's heading."""
    reference: str
    """The row that the others are tested against."""
    measures: list[Measure] = Field(min_length=1)
    """Measures of the table and the page; the files have all measures of the evaluation."""
    test: Test
    """Test of differences, paired by question (pipeline/evaluate/significance/paired.py)."""
    samples: int = Field(ge=100, le=1_000_000)
    """Resamples of the questions, for intervals over several seeds and of differences, and the randomisation test."""
    seed: Seed
    """Seed of the resamples."""
    cells: list[CellConfig] = Field(min_length=1)
    """Cells in the table's order; the evaluation of cell n is the input `evaluate_n`."""
