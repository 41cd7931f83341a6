"""Stage `tune`: fine-tunes a model on a table of sentences and measures it on dev and test.

The training target depends on the table: the cosine of scored pairs, the label of labelled ones (natural language
inference), the nearer one of a triplet (Condenser's sentence tasks, with Sentence-BERT's losses).
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.config import Config, DropoutShare, Seed
from pipeline.errors import InputError
from pipeline.runtime.work import Metrics, Work
from pipeline.sentences.model import SentenceEncoder
from pipeline.training.loop import Optimiser

CHARACTERS = 4
"""Characters of a token in English text, about."""


class TuneConfig(Config):
    epochs: int = Field(ge=0)
    """Passes over the training rows. 0: the model is only measured."""
    max_rows: int | None = Field(ge=1)
    """Training rows, the first of a seeded shuffle, so that smaller sets are part of larger ones. null: all."""


class TuneTraining(Config):
    """Training settings of a sentence task, for all sizes."""

    batch: int = Field(ge=1)
    """Pairs or triplets per update, over all ranks."""
    subset_seed: Seed
    """Seed of the shuffle whose first rows are the smaller training sets; equal for all models and repeats."""
    keep: Literal["last", "best"]
    """Which weights are kept: those of the last epoch, or of the best epoch on dev."""
    margin: float = Field(gt=0)
    """Margin of triplets: how much farther the negative must be. 1 in Sentence-BERT, section 3."""
    dropout: DropoutShare
    """Dropout of hidden states and attention."""
    seed: Seed
    """Seed of the order, of dropout and of the new classifier."""
    optimiser: Optimiser
    """Learning rate 2e-5, linear (Condenser)."""


def tune(
    config: TuneConfig, training: TuneTraining, encoder: SentenceEncoder, table: Path, start: Path, work: Work
) -> Metrics:
    """Trains from checkpoint `start` on the train rows of `table`, and writes a checkpoint.

    Besides the model's files it writes `predictions.parquet` (split, line of the file, then score and cosine; label and
    predicted; or the distances of positive and negative), `validation.parquet` (epoch, step, then the measure on dev)
    if it trained, `result.json` (the metrics), and for labelled pairs `classifier.safetensors` (weight [3, 3E], bias
    [3]). One or several processes compute the vectors (`machine.ranks`); on the CPU their number changes the bytes.
    Raises InputError if the table has fewer training rows than requested, or inputs exceed the model's positions.
    """
    from pipeline.runtime.gpu_ranks import fed_ranks
    from pipeline.runtime.launch import launch
    from pipeline.sentences import tables

    available = tables.describe(table)["train"]
    if config.max_rows is not None and config.max_rows > available:
        raise InputError(f"sizes: {config.max_rows:,} training rows requested, but the table has {available:,}")
    machine = fed_ranks(work.machine, lambda: update_tokens(training.batch, encoder.tokens, table))
    arguments = {
        "config": config.model_dump(mode="json"),
        "settings": training.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "table": str(table),
        "start": str(start),
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "machine": machine.model_dump(mode="json"),
    }
    work.checkpoints.mkdir(parents=True, exist_ok=True)
    return launch("pipeline.sentences.training:train_sentences", arguments, machine, work.progress, work.checkpoints)


def update_tokens(batch: int, longest: int, table: Path) -> float:
    """Returns about the mean tokens of an update of `batch` rows, over all ranks.

    `longest`: tokens of the longest sentence that the model reads. The sentences are not tokenized here.
    """
    import pyarrow.compute as pc

    from pipeline.sentences import tables
    from pipeline.sentences.readers import TEXTS

    rows = tables.read_split(table, "train")
    characters = [pc.mean(pc.utf8_length(rows[name])).as_py() for name in TEXTS[tables.describe(table)["kind"]]]
    return batch * sum(min(mean / CHARACTERS + 2, longest) for mean in characters)
