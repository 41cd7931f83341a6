"""Trains all weights of the model, for queries and passages, so that it ranks as the teacher does.

The loss is that of the linear map (linear_map.py), over a few of a query's candidates, drawn again for each update: the
passages are encoded too. The trained weights are merged with those of the start.

Shapes: Q queries, B queries of a batch, K candidates of a query, C drawn ones, U passages of a batch, E dimension.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.linear_map import Lists, batch
from pipeline.data.counter_rng import uniform
from pipeline.finetune.encoders import Towers
from pipeline.finetune.merge import set_weights
from pipeline.finetune.step import prepare_rows, update
from pipeline.modeling.inputs import Ids
from pipeline.runtime.work import Machine, Progress
from pipeline.training import loop
from pipeline.training.memory import resolve_auto

DRAWING = 6
"""First part of the random numbers' keys after the seed; linear_map.py has the one before it."""

PassageRows = Callable[[np.ndarray], list[np.ndarray]]
"""Returns the tokens of the passages with these numbers."""


def train_both_encoders(
    config: AdaptConfig,
    towers: Towers,
    ids: Ids,
    lists: Lists,
    passage_rows: PassageRows,
    most_tokens: int,
    checkpoints: Path,
    machine: Machine,
    progress: Progress,
    device: str,
) -> None:
    """Changes the weights of `towers`, which are on `device`, to the trained ones, merged with those they have.

    `ids`: tokens of the queries of `lists`. `most_tokens`: of an update. Resumes from the newest checkpoint in
    `checkpoints` if there is one.
    """
    settings, trained = config.both_encoders, towers.trained
    start = {name: x.clone() for name, x in trained.state_dict().items()}
    for one in towers.encoders:
        loop.set_dropout(one.model, 0)
    machine = resolve_auto(machine, device, towers.encoders[0].model.config, trained, most_tokens)

    def step(number: int, _: None) -> dict[str, Any]:
        row_B = batch(config.seed, settings.batch_queries, number, len(ids))
        column_BC = drawn(config, number, len(row_B), lists.row_QK.shape[1])
        passage_BC = np.take_along_axis(lists.row_QK[row_B], column_BC, 1)
        passage_U, place_BC = np.unique(passage_BC, return_inverse=True)
        target_BC = lists.target_QK[row_B].gather(1, torch.from_numpy(column_BC))
        target_BC = (target_BC / target_BC.sum(1, keepdim=True)).to(device)
        places = torch.from_numpy(place_BC.reshape(passage_BC.shape)).to(device)
        rows = [*take(ids, row_B), *passage_rows(passage_U)]
        loss = partial(divergence, place_BC=places, target_BC=target_BC, temperature=lists.temperature)
        prepared = prepare_rows(towers, rows, len(row_B), loss, machine, device)
        return update(towers, prepared, machine, (config.seed, number), device)

    minutes = machine.checkpoint_minutes
    loop.train(trained, step, settings.steps, settings.optimiser, config.seed, checkpoints, minutes, progress, device)
    set_weights(trained, {name: x.clone() for name, x in trained.state_dict().items()}, start, config.merge)
    for one in towers.encoders:
        one.model.eval()


def divergence(vectors_RE: Tensor, place_BC: Tensor, target_BC: Tensor, temperature: float) -> Tensor:
    """Returns the KL divergence of the model's distributions from the teacher's; a mean over the queries.

    `vectors_RE`: of B queries, then of U passages. `place_BC`: each query's passages among the latter.
    """
    query_BE, passage_UE = vectors_RE[: len(place_BC)], vectors_RE[len(place_BC) :]
    logits_BC = (query_BE @ passage_UE.T).gather(1, place_BC) / temperature
    return F.kl_div(F.log_softmax(logits_BC, dim=1), target_BC, reduction="batchmean")


def drawn(config: AdaptConfig, number: int, queries: int, candidates: int) -> np.ndarray:
    """Returns columns of candidates for each query of update `number`, without repeats, int64 [B, C]."""
    key_BK = uniform(config.seed, DRAWING, number, np.arange(queries * candidates)).reshape(queries, candidates)
    return np.argsort(key_BK, axis=1, kind="stable")[:, : config.both_encoders.candidates]


def take(ids: Ids, rows: np.ndarray) -> Sequence[np.ndarray]:
    return [ids[row] for row in rows.tolist()]
