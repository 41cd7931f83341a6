"""Trains on a table of sentences, in a separate process (`pipeline.runtime.launch`).

Shapes: Q rows of the table in a batch, R their sentences (all first ones, all second ones, ...), N rows of a split,
E dimensions.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import save as to_bytes
from torch import nn

from pipeline.data.parquet import write_parquet
from pipeline.finetune import examples
from pipeline.finetune.encoders import Towers, encode_all
from pipeline.finetune.step import PreparedBatch, prepare_rows, update
from pipeline.modeling.biencoder import check_fits, load_encoders
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.inputs import check_room
from pipeline.modeling.model_files.sentence_transformers_files import read_vector
from pipeline.runtime import ranks
from pipeline.runtime.ranks import rank
from pipeline.runtime.work import Machine, Metrics, Progress
from pipeline.sentences import tables
from pipeline.sentences.kinds import LABELS, MEASURE, loss_of, measure, value_of
from pipeline.sentences.model import SentenceEncoder
from pipeline.sentences.readers import TEXTS
from pipeline.sentences.tune import TuneConfig, TuneTraining
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens
from pipeline.training import loop
from pipeline.training.best_weights import BestWeights, Row
from pipeline.training.memory import resolve_auto

SUBSET = 5
"""First number of the subset's seed; no other draw of pipeline/finetune/examples.py uses it."""


class Validation:
    """Measures on dev after each epoch, and keeps the weights of the best epoch.

    `measure()`: the current weights' figure on dev, equal on each rank; None if it is undefined.
    """

    def __init__(self, trained: nn.Module, name: str, measure: Callable[[], float | None], folder: Path) -> None:
        self._measure, self._best = measure, BestWeights(trained, name, folder)

    @property
    def rows(self) -> list[Row]:
        return self._best.rows

    def after(self, epoch: int, step: int) -> None:
        """Measures the weights after `epoch` epochs and `step` updates; keeps them if they are the best so far."""
        self._best.add(epoch, step, self._measure())

    def keep_best(self) -> int:
        """Restores the best epoch's weights on every rank. Returns the epoch, the first of equal ones."""
        ranks.meet()  # rank 0 has written them
        self._best.put_back()
        return int(self._best.row()["epoch"])


class SentenceTokenizer:
    """Tokenizes sentences, batch by batch, for a checkpoint of stage `sentence_model`; updates take far more time."""

    def __init__(self, checkpoint: Path, encoder: SentenceEncoder) -> None:
        """Raises InputError if the prefix leaves no room for a sentence."""
        self._tokenizer = read_tokenizer(checkpoint)
        self.specials = special_tokens(self._tokenizer)[0]
        self._prefix, self._limit = read_vector(checkpoint).question_prefix, encoder.tokens
        before = self._tokenizer.encode(self._prefix, add_special_tokens=False).ids
        check_room("encoder.prefix", before, "encoder.tokens", self._limit)

    def rows(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns `[CLS] prefix sentence [SEP]` of each, int64 [at most `tokens`]; long sentences are cut."""
        encodings = self._tokenizer.encode_batch_fast([self._prefix + text for text in texts], add_special_tokens=False)
        cls, sep, room = self.specials.cls, self.specials.sep, self._limit - 2
        return [np.array([cls, *one.ids[:room], sep], np.int64) for one in encodings]

    def cut(self, rows: Sequence[np.ndarray]) -> int:
        """Returns the number of rows of maximum length, which may be cut."""
        return sum(len(row) == self._limit for row in rows)


def train_sentences(
    *,
    progress: Progress,
    device: str,
    config: dict[str, Any],
    settings: dict[str, Any],
    encoder: dict[str, Any],
    table: str,
    start: str,
    out: str,
    checkpoints: str,
    machine: dict[str, Any],
) -> Metrics:
    """Runs on each rank, on its part of every batch; rank 0 writes the checkpoint."""
    tune_config, training = TuneConfig(**config), TuneTraining(**settings)
    encoder_config = SentenceEncoder(**encoder)
    seed = training.seed
    description = tables.describe(Path(table))
    kind = description["kind"]
    sentences = SentenceTokenizer(Path(start), encoder_config)
    towers = starting(Path(start), kind, training, encoder_config, sentences, device)
    most_tokens = training.batch * len(TEXTS[kind]) * encoder_config.tokens
    backbone = towers.encoders[0].model.config
    machine_config = resolve_auto(Machine.model_validate(machine), device, backbone, towers.trained, most_tokens)
    rows = subset(tables.read_split(Path(table), "train"), tune_config.max_rows, training.subset_seed)
    edges = examples.batches(len(rows), training.batch)
    epoch_steps = len(edges) - 1
    folder = Path(checkpoints)

    def measure_split(split: str) -> tuple[dict[str, np.ndarray], Metrics]:
        table_N = tables.read_split(Path(table), split)
        ids = [row for name in TEXTS[kind] for row in sentences.rows(table_N[name].to_pylist())]
        vectors_RE = encode_all(towers.encoders[0], ids, machine_config.budget)
        columns, figures = measure(kind, vectors_RE.cpu(), table_N, towers.scorer)
        return columns, {**figures, "sentences_cut": sentences.cut(ids)}

    validation = None
    if "dev" in description:
        validation = Validation(towers.trained, MEASURE[kind], lambda: value_of(measure_split("dev")[1], kind), folder)

    def prepare(i: int) -> PreparedBatch:
        epoch, place = divmod(i, epoch_steps)
        chosen_Q = examples.epoch_order(seed, epoch, len(rows))[edges[place] : edges[place + 1]]
        batch = rows.take(chosen_Q)
        ids = [row for name in TEXTS[kind] for row in sentences.rows(batch[name].to_pylist())]
        loss = loss_of(kind, batch, training.margin, towers.scorer, device)
        return prepare_rows(towers, ids, 0, loss, machine_config, device)

    def step(i: int, batch: PreparedBatch) -> dict[str, Any]:
        return update(towers, batch, machine_config, (seed, i), device)

    steps = tune_config.epochs * epoch_steps
    validate = loop.between_epochs(validation.after if validation else None, epoch_steps)
    history: list[dict[str, float]] = []
    if steps:
        history = loop.train(
            towers.trained,
            step,
            steps,
            training.optimiser,
            seed,
            folder,
            machine_config.checkpoint_minutes,
            progress,
            device,
            before=validate,
            prepare=prepare,
        )
    best_epoch = tune_config.epochs
    if validation and steps:
        validation.after(tune_config.epochs, steps)
        if training.keep == "best":
            best_epoch = validation.keep_best()
    splits = [split for split in ("dev", "test") if split in description]
    results = {split: measure_split(split) for split in splits}
    figures = {f"{split}_{name}": value for split in splits for name, value in results[split][1].items()}
    metrics = {"rows": len(rows), "epoch": best_epoch, **figures, **training_summary(history)}
    if rank() == 0:
        write_sentence_model(Path(out), Path(start), towers, history, metrics)
        write_tables(Path(out), {split: results[split][0] for split in splits}, validation.rows if validation else [])
    return metrics


def starting(
    start: Path, kind: str, config: TuneTraining, encoder: SentenceEncoder, sentences: SentenceTokenizer, device: str
) -> Towers:
    """Returns the encoder of checkpoint `start`; for labelled pairs with a new classifier, initialised by the seed."""
    one = load_encoders(start)[0]
    check_fits(one, sentences.specials, start, "encoder.tokens", encoder.tokens)
    loop.set_dropout(one.model, config.dropout)
    torch.manual_seed(config.seed)
    classifier = nn.Linear(3 * one.dimension, LABELS).to(device) if kind == "labelled" else None
    one = one.to(device)
    return Towers((one, one), classifier)


def subset(rows: pa.Table, number: int | None, seed: int) -> pa.Table:
    """Returns the first `number` rows of a seeded shuffle; None: all. A smaller subset is part of a larger one."""
    if number is None:
        return rows
    return rows.take(np.sort(np.random.default_rng([SUBSET, seed]).permutation(len(rows))[:number]))


def training_summary(history: list[dict[str, float]]) -> Metrics:
    return loop.history_metrics(history) if history else {"updates": 0}


def write_sentence_model(
    out: Path, start: Path, towers: Towers, history: list[dict[str, float]], metrics: Metrics
) -> None:
    """Writes the checkpoint with the tokenizer, pooling and prefix of `start`, and the metrics."""
    one = towers.encoders[0]
    vector = replace(read_vector(start), projection=one.projection.dense if one.projection else None)
    save_checkpoint(out, one.model, start, history=history, vector=vector)
    if towers.scorer is not None:
        state = {name: x.detach().cpu().contiguous() for name, x in towers.scorer.state_dict().items()}
        (out / "classifier.safetensors").write_bytes(to_bytes(state))
    (out / "result.json").write_text(json.dumps(metrics, indent=1) + "\n", "utf-8")


def write_tables(out: Path, predictions: dict[str, dict[str, np.ndarray]], validation: list[dict[str, Any]]) -> None:
    if predictions:
        parts = [
            pa.table({"split": [split] * len(columns["line"]), **columns}) for split, columns in predictions.items()
        ]
        write_parquet(pa.concat_tables(parts), out / "predictions.parquet")
    if validation:
        write_parquet(pa.Table.from_pylist(validation), out / "validation.parquet")
