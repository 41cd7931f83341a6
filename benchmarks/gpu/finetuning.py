"""Updates of bi-encoders and cross-encoders: this project's, and those of padded Hugging Face models.

Shapes: Q questions, N passages of each, P = Q * N.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks import published
from benchmarks.gpu import inputs
from benchmarks.gpu.clock import WARM_UP, Step, Way, computed, loop_turn, pinned, plain_turn
from benchmarks.gpu.inputs import LONG_PASSAGE, LONG_QUESTION, PASSAGE, QUESTION, Size
from pipeline.cross_encoder import train as cross_training
from pipeline.cross_encoder.pairs import PairRows
from pipeline.finetune import losses
from pipeline.finetune import step as finetuning
from pipeline.finetune.encoders import Towers
from pipeline.finetune.step import PreparedBatch
from pipeline.modeling.inputs import Ids
from pipeline.training.memory import resolve_auto


class Task(NamedTuple):
    """What is trained."""

    questions: int
    own: int
    """Passages of a question, the first one positive."""
    tied: bool
    lengths: tuple[tuple[int, int], tuple[int, int]]
    """Least and most tokens of questions and of passages."""
    limits: tuple[int, int]
    """Tokens of a padded question and of a padded passage, as the recipes have them."""
    updates: int
    """Of a turn."""


def tasks(size: Size) -> dict[str, Task]:
    """Returns the bi-encoders' tasks by the name of their part."""
    marco, natural = (QUESTION, PASSAGE), (LONG_QUESTION, LONG_PASSAGE)
    return {
        "finetuning_64x8": Task(size.questions, 8, True, marco, (32, 128), size.turn(5)),
        "finetuning_8x8": Task(min(8, size.questions), 8, True, marco, (32, 128), size.turn(18)),
        "finetuning_untied": Task(size.untied_questions, 2, False, natural, (32, 256), size.turn(4)),
    }


def cross_task(size: Size) -> Task:
    """Returns the cross-encoder's task; `limits`: a pair has at most the two together."""
    return Task(size.pair_questions, 8, True, (QUESTION, PASSAGE), (32, 128), size.turn(6))


def rows(task: Task, size: Size, i: int) -> list[np.ndarray]:
    """Returns the rows of batch i, questions first."""
    questions = inputs.rows(task.questions, task.lengths[0], size, 2 * i)
    return questions + inputs.rows(task.questions * task.own, task.lengths[1], size, 2 * i + 1)


def pairs(task: Task, size: Size, i: int) -> PairRows:
    """Returns the pairs of batch i, question by question."""
    ids = rows(task, size, i)
    questions, passages = ids[: task.questions], ids[task.questions :]
    own_questions = [questions[place // task.own] for place in range(len(passages))]
    joined = [
        np.concatenate((question, passage[1:])) for question, passage in zip(own_questions, passages, strict=True)
    ]
    return PairRows(joined, np.array([len(question) for question in own_questions]))


def towers(task: Task, size: Size, device: str) -> Towers:
    first = inputs.encoder(size, device)
    return Towers((first, first if task.tied else inputs.encoder(size, device, seed=1)), None)


def our_step(task: Task, size: Size, model: Towers, device: str) -> Step:
    """Returns this project's step; the rows are drawn before."""
    drawn = [rows(task, size, i) for i in range(WARM_UP + task.updates)]
    most = task.questions * (task.limits[0] + task.own * task.limits[1])
    machine = resolve_auto(inputs.machine(device), device, model.encoders[0].model.config, model.trained, most)
    nothing_QP = torch.zeros(task.questions, task.questions * task.own, dtype=torch.bool, device=device)

    def loss(vectors_RE: Tensor) -> Tensor:
        return losses.contrastive(vectors_RE[: task.questions], vectors_RE[task.questions :], nothing_QP, 1.0)

    def prepare(i: int) -> PreparedBatch:
        return finetuning.prepare_rows(model, drawn[i], task.questions, loss, machine, device)

    def step(i: int, batch: PreparedBatch) -> Mapping[str, Any]:
        return finetuning.update(model, batch, machine, (0, i), device)

    return Step(prepare, step)


def ours(task: Task, size: Size, device: str) -> Way:
    model = towers(task, size, device)
    module, step = model.trained.train(), our_step(task, size, model, device)
    return Way(lambda: loop_turn(module, step, task.updates, device), lambda: computed(module, step.whole))


def theirs(task: Task, size: Size, device: str, attention: str) -> Way:
    """Padded questions and passages, a forward call each. `attention`: `eager` or `sdpa`."""
    model = towers(task, size, device)
    module = model.trained.train()
    first, second = (one.model for one in model.encoders)
    for one in {id(first): first, id(second): second}.values():
        one.set_attn_implementation(attention)
    adam = torch.optim.AdamW(module.parameters(), lr=1e-6, fused=True)
    padded = [_padded(rows(task, size, i), task, device) for i in range(WARM_UP + task.updates)]

    def step(i: int) -> Tensor:
        questions, passages = (_to(batch, device) for batch in padded[i])
        return published.biencoder(first, questions, passages, second)

    return Way(lambda: plain_turn(module, step, adam, task.updates, device), lambda: computed(module, step))


def our_cross_step(task: Task, size: Size, model: Any, device: str) -> Step:
    """Returns this project's step of a cross-encoder; the pairs are drawn before."""
    drawn = [pairs(task, size, i) for i in range(WARM_UP + task.updates)]
    most = task.questions * task.own * sum(task.limits)
    machine = resolve_auto(inputs.machine(device), device, model.config, model, most)

    def prepare(i: int) -> PreparedBatch:
        shape = (task.questions, task.own)
        return cross_training.prepare_pairs(model, drawn[i], shape, cross_training.listwise, machine, device)

    def step(i: int, batch: PreparedBatch) -> Mapping[str, Any]:
        return cross_training.update(model, batch, machine, (0, i), device)

    return Step(prepare, step)


def our_cross(task: Task, size: Size, device: str) -> Way:
    model = inputs.classifier(size, device)
    step = our_cross_step(task, size, model, device)
    return Way(lambda: loop_turn(model, step, task.updates, device), lambda: computed(model, step.whole))


def their_cross(task: Task, size: Size, device: str, attention: str) -> Way:
    """Padded pairs. `attention`: `eager` or `sdpa`."""
    model = inputs.classifier(size, device)
    model.set_attn_implementation(attention)
    adam = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-6, fused=True)
    drawn = [pairs(task, size, i) for i in range(WARM_UP + task.updates)]
    limit = sum(task.limits)
    padded = [(_filled(batch.ids, limit, device), pinned(_types(batch, limit), device)) for batch in drawn]

    def step(i: int) -> Tensor:
        batch, type_BL = padded[i]
        return published.cross_encoder(model, _to(batch, device), type_BL.to(device, non_blocking=True), task.own)

    return Way(lambda: plain_turn(model, step, adam, task.updates, device), lambda: computed(model, step))


def _padded(ids: Ids, task: Task, device: str) -> list[published.Filled]:
    sides = ids[: task.questions], ids[task.questions :]
    return [_filled(side, limit, device) for side, limit in zip(sides, task.limits, strict=True)]


def _filled(ids: Ids, limit: int, device: str) -> published.Filled:
    return published.Filled(*(pinned(x, device) for x in published.filled(ids, limit, 0)))


def _types(batch: PairRows, limit: int) -> Tensor:
    """Returns token types: 1 in the passages, [B, limit]."""
    place_L = np.arange(limit)
    length_B = np.array([len(row) for row in batch.ids])
    inside_BL = (place_L >= batch.second_N[:, None]) & (place_L < length_B[:, None])
    return torch.from_numpy(inside_BL.astype(np.int64))


def _to(batch: published.Filled, device: str) -> published.Filled:
    return published.Filled(*(x.to(device, non_blocking=True) for x in batch))
