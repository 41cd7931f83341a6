"""The training of a bi-encoder, in a child process (`pipeline.runtime.launch`).

Shapes: Q questions of a batch, N passages of each, P = Q * N, R = Q + P rows, E dimensions of a vector.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor, nn

from pipeline.data.parquet import write_parquet
from pipeline.finetune import examples, losses
from pipeline.finetune.config import FinetuneConfig
from pipeline.finetune.encoders import encode_all, starting_towers, write_checkpoint
from pipeline.finetune.merge import merge
from pipeline.finetune.pools import load_pools
from pipeline.finetune.principal_components import can_rotate, rotated_towers, sample
from pipeline.finetune.scheduling import order as orders
from pipeline.finetune.score_table import Scores
from pipeline.finetune.soft_targets import targets
from pipeline.finetune.step import PreparedBatch, prepare_rows, update
from pipeline.finetune.validation import Candidates
from pipeline.finetune.validator import Validator
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import (
    passage_rows,
    question_rows,
    read_form,
    unread,
    unread_metrics,
    unread_of_questions,
)
from pipeline.modeling.packing import upload
from pipeline.runtime.ranks import rank, world
from pipeline.runtime.work import Machine, Metrics, Progress, counter
from pipeline.tokenization.token_files import Tokens
from pipeline.training import loop
from pipeline.training.memory import resolve_auto


def train_encoders(
    *,
    progress: Progress,
    device: str,
    config: dict[str, Any],
    encoder: dict[str, Any],
    tokens: str,
    start: str,
    files: dict[str, str],
    out: str,
    checkpoints: str,
    machine: dict[str, Any],
) -> Metrics:
    """Trains this rank's pieces of every batch; rank 0 writes the checkpoint.

    `files`: paths of the pools and, if the recipe needs them, of a teacher's scores and the validation candidates.
    """
    settings, encoder_settings = FinetuneConfig(**config), EncoderConfig(**encoder)
    data, pools = Tokens.open(Path(tokens)), load_pools(Path(files["pools"]))
    scores = Scores(**np.load(files["scores"])) if "scores" in files else None
    form = read_form(encoder_settings, Path(start), data.specials)
    towers = starting_towers(Path(start), settings, encoder_settings, data, device)
    machine_settings = resolve_auto(
        Machine.model_validate(machine),
        device,
        towers.encoders[0].model.config,
        towers.trained,
        most_tokens(settings, encoder_settings),
    )
    size = examples.epoch_size(pools)
    edges = examples.batches(size, settings.batch_queries)
    epoch_steps = len(edges) - 1
    draw = examples.Draw(settings.negatives_per_query, settings.positives_considered, settings.seed)

    def validator_of(name: str) -> Validator:
        candidates = Candidates(**np.load(files[name]))
        budget, folder = machine_settings.budget, Path(checkpoints)
        return Validator(towers, candidates, data, form, settings.passage_tokens, budget, folder)

    validator = validator_of("candidates") if "candidates" in files else None

    def vectors_of(queries_N: np.ndarray, passages_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sides = question_rows(data, queries_N, form), passage_rows(data, passages_N, form, settings.passage_tokens)
        encoded = [
            encode_all(one, ids, machine_settings.budget) for one, ids in zip(towers.encoders, sides, strict=True)
        ]
        return encoded[0].cpu().numpy(), encoded[1].cpu().numpy()

    steps, schedule = settings.epochs * epoch_steps, Path(checkpoints) / "schedule"
    with orders.open_order(settings, pools, data, edges, vectors_of, schedule, device) as order:

        def prepare(i: int) -> PreparedBatch:
            epoch, place = divmod(i, epoch_steps)
            batch = examples.draw_batch(pools, epoch, order(epoch, place), draw)
            ids = question_rows(data, batch.queries_Q, form)
            ids += passage_rows(data, batch.passages_QN.ravel(), form, settings.passage_tokens)
            loss = loss_of(settings, batch, scores, towers.scorer, device)
            if encoder_settings.dimensions is not None:
                dimensions, normalise = encoder_settings.dimensions, encoder_settings.normalise
                loss = partial(losses.over_prefixes, loss, dimensions=dimensions, normalise=normalise)
            return prepare_rows(towers, ids, len(batch.queries_Q), loss, machine_settings, device)

        def step(i: int, batch: PreparedBatch) -> dict[str, Any]:
            return update(towers, batch, machine_settings, (settings.seed, i), device)

        history = loop.train(
            towers.trained,
            step,
            steps,
            settings.optimiser,
            settings.seed,
            Path(checkpoints),
            machine_settings.checkpoint_minutes,
            progress,
            device,
            before=loop.between_epochs(validator.after if validator else None, epoch_steps),
            prepare=prepare,
            ahead=not settings.batch_order.startswith("abs"),
        )
    validated = validator.last(settings.epochs, steps, settings.validation.keep) if validator else {}
    merged: Metrics = {}
    if settings.merge is not None:
        began = starting_towers(Path(start), settings, encoder_settings, data, device).trained.state_dict()
        deciding = validator_of("merge_candidates") if "merge_candidates" in files else None
        measure = deciding.reciprocal_ranks if deciding else None
        merged = merge(settings.merge, towers.trained, began, measure, settings.seed)
    listed, (_, text_N) = pools.listed(), unread(data, form, settings.passage_tokens)
    question_N = unread_of_questions(data, pools.queries, form)
    cut = unread_metrics("questions", question_N, data.queries.lengths[pools.queries])
    cut |= unread_metrics("passages", text_N[listed], data.passages.lengths[listed])
    written = towers
    if encoder_settings.dimensions is not None and can_rotate(towers):
        ids = passage_rows(data, sample(len(data.passages), settings.seed), form, settings.passage_tokens)
        done = counter(progress, -(-len(ids) // world()), "passages")
        vectors_NE = encode_all(towers.encoders[1], ids, machine_settings.budget, done).cpu().numpy()
        written = rotated_towers(towers, vectors_NE)
    if rank() == 0:
        write_checkpoint(Path(out), written, encoder_settings, Path(start), history)
        tables = {"validation": validator.rows if validator else [], "schedule": orders.hardness(schedule)}
        for name, rows in tables.items():
            if rows:
                write_parquet(pa.Table.from_pylist(rows), Path(out) / f"{name}.parquet")
    return {**loop.history_metrics(history), **validated, **merged, **cut}


def most_tokens(config: FinetuneConfig, encoder: EncoderConfig) -> int:
    """Returns a number of tokens that no update exceeds, over all ranks."""
    return config.batch_queries * (encoder.question_tokens + (1 + config.negatives_per_query) * config.passage_tokens)


def loss_of(
    config: FinetuneConfig, batch: examples.ExampleBatch, scores: Scores | None, scorer: nn.Linear | None, device: str
) -> Callable[[Tensor], Tensor]:
    """Returns the loss of a batch as a function of its vectors [R, E]."""
    questions = len(batch.queries_Q)
    excluded_QP = upload(exclusions(batch, config), device)
    target_QN = None
    if scores:
        soft_QN = targets(scores, batch.queries_Q, batch.passages_QN, config.teacher_temperature)
        target_QN = upload(soft_QN, device)

    def loss(vectors_RE: Tensor) -> Tensor:
        both = vectors_RE[:questions], vectors_RE[questions:]
        if scorer is not None:
            return losses.learning_to_rank(*both, excluded_QP, scorer)
        if target_QN is not None:
            return losses.soft_labels(*both, excluded_QP, config.temperature, target_QN)
        return losses.contrastive(*both, excluded_QP, config.temperature)

    return loss


def exclusions(batch: examples.ExampleBatch, config: FinetuneConfig) -> np.ndarray:
    """Returns the passages that are left out of a question's softmax, bool [Q, P]."""
    excluded_QP = batch.excluded_QP if config.mask_positives else np.zeros_like(batch.excluded_QP)
    questions, own = batch.passages_QN.shape
    if config.share_negatives is not None:
        group_Q = np.arange(questions) // config.share_negatives
        excluded_QP = excluded_QP | (group_Q[:, None] != group_Q.repeat(own))
    return excluded_QP
