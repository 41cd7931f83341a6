"""A stage: a model fine-tuned on a table of sentences, and what it is worth on dev and test.

What is learnt hangs on the table: the cosine of scored pairs, the label of labelled ones (natural language inference),
the nearer one of a triplet (Condenser's sentence tasks, by Sentence-BERT's losses).
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.errors import InputError
from pipeline.runtime.work import Metrics, Work
from pipeline.sentences.model import SentenceEncoder
from pipeline.training.loop import Optimiser


class TuneConfig(Config):
    epochs: int = Field(ge=0)
    """Passes over the training rows. 0: the model as it is, measured."""
    max_rows: int = Field(ge=0)
    """Training rows, the first of a seeded shuffle, so that smaller sets lie within larger ones. 0: all."""


class TuneTraining(Config):
    """How a sentence task trains, whatever its size."""

    batch: int = Field(ge=1)
    """Pairs or triplets in an update, over all ranks."""
    subset_seed: Seed
    """Seed of the shuffle whose first rows are the smaller training sets: the same for all models and repeats."""
    select: Literal["last", "best"]
    """The weights kept: the last epoch's, or those of the epoch that was best on dev."""
    margin: float = Field(gt=0)
    """Of triplets: by how much farther the negative is to be. 1 in Sentence-BERT, section 3."""
    dropout: float | None = Field(ge=0, lt=1)
    """Dropout of hidden states and attention. null: what the checkpoint's configuration says."""
    optimiser: Optimiser
    """Learning rate 2e-5, linear (Condenser). Its seed is that of order and dropout too."""


def tune(
    config: TuneConfig, training: TuneTraining, encoder: SentenceEncoder, table: Path, start: Path, work: Work
) -> Metrics:
    """Train from checkpoint `start` on the train rows of `table`, and write a checkpoint.

    Beside the model's files: `predictions.parquet` (split, line of the file, then score and cosine; label and
    predicted; or the distances of positive and negative), `validation.parquet` (epoch, step, then the measure on dev)
    where it trained, `result.json` (the metrics), and of labelled pairs `classifier.safetensors` (weight [3, 3E], bias
    [3]). Vectors come from one process or several (`machine.ranks`); on the CPU their number changes the bytes. Raises
    InputError where fewer training rows are there than asked for, or inputs are longer than the model's positions.
    """
    from pipeline.runtime.launch import launch
    from pipeline.sentences import tables

    there = tables.describe(table)["train"]
    if config.max_rows > there:
        raise InputError(f"sizes: {config.max_rows:,} training rows asked for, but the table has {there:,}")
    arguments = {
        "config": config.model_dump(mode="json"),
        "settings": training.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "table": str(table),
        "start": str(start),
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "machine": work.machine.model_dump(mode="json"),
    }
    work.checkpoints.mkdir(parents=True, exist_ok=True)
    return launch("pipeline.sentences.training:train", arguments, work.machine, work.progress, work.checkpoints)
