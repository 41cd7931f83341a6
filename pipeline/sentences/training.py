"""Trains on a table of sentences, in a separate process (`pipeline.runtime.launch`).

Shapes: Q rows of the table in a batch, R their sentences (all first ones, all second ones, ...), N rows of a split,
E dimensions.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.data.parquet import write_parquet
from pipeline.evaluate.bootstrap import rounded
from pipeline.finetune import examples
from pipeline.finetune.encoders import Towers, encode_all
from pipeline.finetune.step import update
from pipeline.modeling.biencoder import check_fits, load_encoders
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.sentence_transformers_files import read_vector
from pipeline.runtime.ranks import rank
from pipeline.runtime.work import Machine, Metrics, Progress
from pipeline.sentences import losses, measures, tables
from pipeline.sentences.inputs import Sentences
from pipeline.sentences.model import SentenceEncoder
from pipeline.sentences.readers import TEXTS
from pipeline.sentences.tune import TuneConfig, TuneTraining
from pipeline.sentences.validation import Validation
from pipeline.training import loop

MEASURE = {"scored": "spearman", "labelled": "accuracy", "triplets": "accuracy"}
"""Kind of table -> measure that selects the best epoch."""
SUBSET = 5
"""First number of the subset's seed; no other draw of pipeline/finetune/examples.py uses it."""
LABELS = 3


def train(
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
    encoder_config, machine_config = SentenceEncoder(**encoder), Machine.model_validate(machine)
    seed = training.seed
    description = tables.describe(Path(table))
    kind = description["kind"]
    sentences = Sentences(Path(start), encoder_config)
    towers = starting(Path(start), kind, training, encoder_config, sentences, device)
    rows = subset(tables.read_split(Path(table), "train"), tune_config.max_rows, training.subset_seed)
    edges = examples.batches(len(rows), training.batch)
    epoch_steps = len(edges) - 1
    folder = Path(checkpoints)

    def measure_split(split: str) -> tuple[dict[str, np.ndarray], Metrics]:
        table_N = tables.read_split(Path(table), split)
        ids = [row for name in TEXTS[kind] for row in sentences.rows(table_N[name].to_pylist())]
        vectors_RE = encode_all(towers.encoders[0], ids, machine_config.token_budget)
        columns, figures = measure_rows(kind, vectors_RE.cpu(), table_N, towers.scorer)
        return columns, {**figures, "sentences_cut": sentences.cut(ids)}

    validation = None
    if "dev" in description:
        validation = Validation(towers.trained, MEASURE[kind], lambda: value_of(measure_split("dev")[1], kind), folder)

    def step(i: int) -> dict[str, Any]:
        epoch, place = divmod(i, epoch_steps)
        chosen_Q = examples.order(seed, epoch, len(rows))[edges[place] : edges[place + 1]]
        batch = rows.take(chosen_Q)
        ids = [row for name in TEXTS[kind] for row in sentences.rows(batch[name].to_pylist())]
        return update(
            towers, ids, 0, loss_of(kind, batch, training.margin, towers, device), machine_config, (seed, i), device
        )

    steps = tune_config.epochs * epoch_steps
    validate = loop.between_epochs(validation.after if validation else None, epoch_steps)
    history = train_loop(towers, step, validate, steps, training, folder, machine_config, progress, device)
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
        write_checkpoint(Path(out), Path(start), towers, history, metrics)
        write_tables(Path(out), {split: results[split][0] for split in splits}, validation.rows if validation else [])
    return metrics


def starting(
    start: Path, kind: str, config: TuneTraining, encoder: SentenceEncoder, sentences: Sentences, device: str
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


def loss_of(kind: str, batch: pa.Table, margin: float, towers: Towers, device: str) -> Callable[[Tensor], Tensor]:
    """Returns the loss of a batch as a function of its vectors [R, E]."""
    if kind == "scored":
        score_Q = torch.tensor(batch["score"].to_pylist(), device=device)
        return lambda vectors_RE: losses.scored(vectors_RE, score_Q)
    if towers.scorer is not None:
        classifier, label_Q = towers.scorer, torch.tensor(batch["label"].to_pylist(), device=device)
        return lambda vectors_RE: losses.labelled(vectors_RE, label_Q, classifier)
    return lambda vectors_RE: losses.triplets(vectors_RE, margin)


def train_loop(
    towers: Towers,
    step: Callable[[int], dict[str, Any]],
    before: Callable[[int], None],
    steps: int,
    config: TuneTraining,
    folder: Path,
    machine: Machine,
    progress: Progress,
    device: str,
) -> list[dict[str, float]]:
    """Trains and returns the history; empty if there are no updates."""
    if not steps:
        return []
    return loop.train(
        towers.trained,
        step,
        steps,
        config.optimiser,
        config.seed,
        folder,
        machine.checkpoint_minutes,
        progress,
        device,
        before,
    )


def training_summary(history: list[dict[str, float]]) -> Metrics:
    return loop.summary(history) if history else {"updates": 0}


def measure_rows(
    kind: str, vectors_RE: Tensor, table_N: pa.Table, classifier: nn.Linear | None
) -> tuple[dict[str, np.ndarray], Metrics]:
    """Returns (columns of predictions.parquet, figures) of a split's vectors, in float64."""
    line_N = table_N["line"].to_numpy()
    if kind == "labelled":
        assert classifier is not None
        with torch.inference_mode():
            logits_NL = classifier(losses.features(vectors_RE.to(classifier.weight.device)))
        predicted_N = logits_NL.argmax(1).cpu().numpy()
        label_N = table_N["label"].to_numpy()
        right = rounded((predicted_N == label_N).mean())
        return {"line": line_N, "label": label_N, "predicted": predicted_N.astype(np.int8)}, {"accuracy": right}
    parts = vectors_RE.double().chunk(len(TEXTS[kind]))
    if kind == "scored":
        cosine_N = F.cosine_similarity(parts[0], parts[1]).numpy()
        score_N = table_N["score"].to_numpy()
        return {"line": line_N, "score": score_N, "cosine": cosine_N}, {**measures.correlations(cosine_N, score_N)}
    anchor_NE, positive_NE, negative_NE = parts
    near_N, far_N = ((anchor_NE - other_NE).norm(dim=1).numpy() for other_NE in (positive_NE, negative_NE))
    right = rounded((near_N < far_N).mean())
    return {"line": line_N, "positive": near_N, "negative": far_N}, {"accuracy": right}


def value_of(figures: Metrics, kind: str) -> float | None:
    value = figures[MEASURE[kind]]
    assert value is None or isinstance(value, float)
    return value


def write_checkpoint(out: Path, start: Path, towers: Towers, history: list[dict[str, float]], metrics: Metrics) -> None:
    """Writes the checkpoint with the tokenizer, pooling and prefix of `start`, and the metrics."""
    one = towers.encoders[0]
    projection = one.projection.weight if one.projection else None
    vector = replace(read_vector(start), projection_ED=projection)
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
