"""Trains all weights of the model, for queries and passages, so that it ranks as the teacher does.

The loss is that of the linear map (linear_map.py), over a few of a query's candidates, drawn again for each update: the
passages are encoded too. The trained weights are merged with those of the start.

Shapes: Q queries, B queries of a batch, K candidates of a query, C drawn ones, U passages of a batch, E dimension.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.linear_map import Lists, batch, kl_divergence
from pipeline.adapt.training import Training, train_and_merge
from pipeline.data.counter_rng import uniform
from pipeline.finetune.encoders import Towers
from pipeline.finetune.step import PreparedBatch, prepare_rows, update
from pipeline.modeling.inputs import Ids
from pipeline.modeling.packing import to_device, upload
from pipeline.training.memory import resolve_auto

DRAWING = 6
"""First part of the random numbers' keys after the seed; linear_map.py has the one before it."""


def train_both_encoders(
    training: Training,
    towers: Towers,
    ids: Ids,
    lists: Lists,
    passage_rows: Callable[[np.ndarray], list[np.ndarray]],
    most_tokens: int,
) -> None:
    """Changes the weights of `towers`, which are on the device, to the trained ones, merged with those they have.

    `ids`: tokens of the queries of `lists`. `passage_rows` returns the tokens of passages. `most_tokens`: of an update.
    """
    config, device = training.config, training.device
    settings, trained = config.both_encoders, towers.trained
    machine = resolve_auto(training.machine, device, towers.encoders[0].model.config, trained, most_tokens)

    def prepare(number: int) -> PreparedBatch:
        row_B = batch(config.seed, settings.batch_queries, number, len(ids))
        column_BC = draw_columns(config, number, len(row_B), lists.row_QK.shape[1])
        passage_BC = np.take_along_axis(lists.row_QK[row_B], column_BC, 1)
        passage_U, place_BC = np.unique(passage_BC, return_inverse=True)
        target_BC = np.take_along_axis(lists.target_QK.numpy()[row_B], column_BC, 1)
        target_BC = np.maximum(target_BC, np.finfo(np.float32).tiny)  # all drawn ones may be 0
        target_BC /= target_BC.sum(1, keepdims=True)
        loss = partial(
            divergence,
            place_BC=to_device(place_BC.reshape(passage_BC.shape), device),
            target_BC=upload(target_BC, device),
            temperature=lists.temperature,
        )
        rows = [*(ids[row] for row in row_B.tolist()), *passage_rows(passage_U)]
        return prepare_rows(towers, rows, len(row_B), loss, machine, device)

    def step(number: int, prepared: PreparedBatch) -> dict[str, Any]:
        return update(towers, prepared, machine, (config.seed, number), device)

    train_and_merge(training, settings, towers.encoders, trained, step, prepare)


def divergence(vectors_RE: Tensor, place_BC: Tensor, target_BC: Tensor, temperature: float) -> Tensor:
    """Returns the KL divergence of the model's distributions from the teacher's; a mean over the queries.

    `vectors_RE`: of B queries, then of U passages. `place_BC`: each query's passages among the latter.
    """
    query_BE, passage_UE = vectors_RE[: len(place_BC)], vectors_RE[len(place_BC) :]
    return kl_divergence(torch.gather(query_BE @ passage_UE.T, 1, place_BC) / temperature, target_BC)


def draw_columns(config: AdaptConfig, number: int, queries: int, candidates: int) -> np.ndarray:
    """Returns columns of candidates for each query of update `number`, without repeats, int64 [B, C].

    All of them if there are no more than an update draws.
    """
    key_BK = uniform(config.seed, DRAWING, number, np.arange(queries * candidates)).reshape(queries, candidates)
    return np.argsort(key_BK, axis=1, kind="stable")[:, : config.both_encoders.candidates]
