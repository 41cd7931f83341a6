"""Trains one linear map I + A of the vectors of queries and passages, so that they rank as the teacher does.

The loss is listwise: the KL divergence of the model's distribution over a query's candidates from the teacher's.

Shapes: Q queries, B queries of a batch, K candidates of a query, N passages, E dimension of a vector.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.adapt.config import AdaptConfig
from pipeline.data.counter_rng import uniform
from pipeline.dense.rescore import take_rows

TRAINING = 5
"""First part of the random numbers' keys after the seed; queries.py has the smaller ones."""


@dataclass(frozen=True)
class Lists:
    """What the map is trained on. `training_lists` builds it."""

    query_QE: np.ndarray
    """float32."""
    row_QK: np.ndarray
    """Candidates: rows of the passages' vectors."""
    target_QK: Tensor
    """The teacher's distribution over each query's candidates."""
    temperature: float
    """Of the model's inner products."""


def training_lists(
    config: AdaptConfig, query_QE: np.ndarray, row_QK: np.ndarray, teacher_QK: np.ndarray, vectors_NE: np.ndarray
) -> Lists:
    """Returns the lists with the distribution of the teacher, whose scores are `teacher_QK`."""
    temperature = scaled_temperature(config, row_QK, vectors_NE)
    target_QK = targets(query_QE, row_QK, teacher_QK, vectors_NE, temperature)
    return Lists(query_QE, row_QK, target_QK, temperature)


def train_map(
    config: AdaptConfig, lists: Lists, vectors_NE: np.ndarray, normalise: bool, done: Callable[[int, float], None]
) -> np.ndarray:
    """Returns the map merged with the identity, float32 [E, E]. `normalise`: to vectors of length 1, after the map.

    `done(steps, loss)` is called after each update.
    """
    dimension = lists.query_QE.shape[1]
    change_EE = torch.zeros(dimension, dimension, requires_grad=True)
    optimiser = torch.optim.Adam([change_EE], lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / config.steps)
    for step in range(config.steps):
        row_B = batch(config.seed, config.batch_queries, step, len(lists.query_QE))
        query_BE, passage_BKE = tensors(lists, row_B, vectors_NE)
        logits_BK = products(change_EE, query_BE, passage_BKE, normalise) / lists.temperature
        divergence = kl_divergence(logits_BK, lists.target_QK[row_B])
        loss = divergence + config.l2 * change_EE.square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        done(step + 1, float(divergence.detach()))
    merged_EE = np.eye(dimension) + config.merge * change_EE.detach().numpy().astype(np.float64)
    return merged_EE.astype(np.float32)


def kl_divergence(logits_BK: Tensor, target_BK: Tensor) -> Tensor:
    """Returns the KL divergence of softmax(logits) from the teacher's distribution; a mean over the queries."""
    return F.kl_div(F.log_softmax(logits_BK, dim=1), target_BK, reduction="batchmean")


def divergence_of(
    config: AdaptConfig, lists: Lists, vectors_NE: np.ndarray, normalise: bool, map_EE: np.ndarray | None = None
) -> float:
    """Returns the mean KL divergence over all queries, with this map; None: without a map."""
    queries, dimension = lists.query_QE.shape
    change_EE = torch.zeros(dimension, dimension) if map_EE is None else torch.from_numpy(map_EE) - torch.eye(dimension)
    total = 0.0
    for row_B in np.array_split(np.arange(queries), -(-queries // config.batch_queries)):
        logits_BK = products(change_EE, *tensors(lists, row_B, vectors_NE), normalise) / lists.temperature
        total += float(F.kl_div(F.log_softmax(logits_BK, dim=1), lists.target_QK[row_B], reduction="sum"))
    return total / queries


def batch(seed: int, size: int, step: int, queries: int) -> np.ndarray:
    """Returns the `size` queries of an update: each epoch has another order, and a batch may span two epochs."""
    place_B = np.arange(step * size, (step + 1) * size)
    epoch_B = place_B // queries
    order = {
        epoch: np.argsort(uniform(seed, TRAINING, epoch, np.arange(queries)), kind="stable")
        for epoch in np.unique(epoch_B).tolist()
    }
    return np.array([order[epoch][place % queries] for epoch, place in zip(epoch_B, place_B, strict=True)], np.int64)


def tensors(lists: Lists, row_B: np.ndarray, vectors_NE: np.ndarray) -> tuple[Tensor, Tensor]:
    """Returns the vectors of queries and their candidates, float32 [B, E] and [B, K, E]."""
    passage_BKE = take_rows(vectors_NE, lists.row_QK[row_B]).astype(np.float32)
    return torch.from_numpy(lists.query_QE[row_B]), torch.from_numpy(passage_BKE)


def products(change_EE: Tensor, query_BE: Tensor, passage_BKE: Tensor, normalise: bool) -> Tensor:
    """Returns inner products of mapped queries and candidates, [B, K]."""
    query_BE = query_BE + query_BE @ change_EE.T
    passage_BKE = passage_BKE + passage_BKE @ change_EE.T
    if normalise:
        query_BE, passage_BKE = F.normalize(query_BE, dim=-1), F.normalize(passage_BKE, dim=-1)
    return torch.einsum("be,bke->bk", query_BE, passage_BKE)


def scaled_temperature(config: AdaptConfig, row_QK: np.ndarray, vectors_NE: np.ndarray) -> float:
    """Returns the temperature for the model's inner products: those of long vectors are larger than cosines.

    The scale is the mean squared length of the candidates of the first queries, as many as a batch.
    """
    passage_BKE = take_rows(vectors_NE, row_QK[: config.batch_queries]).astype(np.float32)
    return config.temperature * float(torch.from_numpy(passage_BKE).double().square().sum(-1).mean())


def targets(
    query_QE: np.ndarray, row_QK: np.ndarray, teacher_QK: np.ndarray, vectors_NE: np.ndarray, temperature: float
) -> Tensor:
    """Returns the teacher's distribution over each query's candidates, [Q, K].

    Its scores get the mean and the spread of the logits of the model as it is: only their order and relative distances
    teach.
    """
    target_QK = np.empty(teacher_QK.shape, np.float32)
    for query, (teacher_K, row_K) in enumerate(zip(teacher_QK, row_QK, strict=True)):
        vectors_KE = take_rows(vectors_NE, row_K).astype(np.float64)
        own_K = vectors_KE @ query_QE[query].astype(np.float64) / temperature
        spread = teacher_K.std()
        logits_K = (teacher_K - teacher_K.mean()) / (spread or 1) * own_K.std() + own_K.mean()
        share_K = np.exp(logits_K - logits_K.max())
        target_QK[query] = share_K / share_K.sum()
    return torch.from_numpy(target_QK)
