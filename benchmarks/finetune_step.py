"""A step of fine-tuning, 4 x 256, one thread, against the published toolkit's: 8 questions with 8 passages each.

Questions of pydocs, at most 32 tokens; passages of at most 128, as long as coCondenser's spans (MS MARCO's are a little
shorter). It also prints the ratio against SDPA attention, 32 questions with 2 passages each, and pydocs' passages
under their titles, which nearly all reach the limit.
"""

import sys
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import published
from benchmarks.data import pydocs
from benchmarks.paired import Figures, Step, Way, ratio
from benchmarks.steps import BATCHES, BUDGET, LIMIT, adam, compare_steps, new_module, update_weights
from pipeline.data.barred import Texts, between
from pipeline.data.judged import PassageLists
from pipeline.finetune import examples, losses
from pipeline.finetune.pools import Pools
from pipeline.finetune.step import Piece, backward, rank_pieces
from pipeline.modeling.biencoder import Encoder, vectors
from pipeline.modeling.inputs import Form, pack, passage_rows, question_rows
from pipeline.pretrain.spans import long_enough
from pipeline.training.memory import keeps

ROUNDS = 6
QUESTION, TITLE, POOL = 32, 24, 50


class Source:
    """Batches of Q questions of pydocs, each with N passages drawn at random from its own pool.

    `titles`: pydocs' passages under their titles; else its text cut into pieces as long as a document's two spans.
    """

    def __init__(self, questions: int, own: int, titles: bool) -> None:
        self.data, self.questions = pydocs(), questions
        self.form = Form(self.data.specials, QUESTION, TITLE if titles else 0, between=(self.data.specials.sep,))
        if not titles:
            length_D = np.diff(self.data.passages.offsets[self.data.doc_offsets])
            length_N = np.minimum(length_D[long_enough(length_D, 16)] // 2, LIMIT - 2)
            offsets = np.append(0, length_N.cumsum())
            self.data = replace(self.data, passages=replace(self.data.passages, offsets=offsets))
        self.draw = examples.Draw(negatives=own - 1, positives_considered=None, seed=0)
        rng, size, passages = np.random.default_rng(0), len(self.data.queries), len(self.data.passages)
        judged, negatives = (
            PassageLists(rng.integers(passages, size=size * n, dtype=np.int32), np.arange(size + 1) * n)
            for n in (1, POOL)
        )
        number_P = np.arange(passages, dtype=np.uint64)  # each passage and question has its own words
        asked_n, own_n = np.arange(passages, passages + size, dtype=np.uint64), np.full(size, -1)
        unfit = between(Texts(number_P, number_P), asked_n, own_n, np.arange(size), judged.flat)
        self.pools = Pools(np.arange(size), judged, unfit, (negatives,), passages)

    def __call__(self, i: int) -> list[np.ndarray]:
        """Returns the rows of batch i, questions first; drawn again at each call as in training."""
        order = examples.epoch_order(0, 0, examples.epoch_size(self.pools))
        batch = examples.draw_batch(self.pools, 0, order[i * self.questions :][: self.questions], self.draw)
        ids = question_rows(self.data, batch.queries_Q, self.form)
        return ids + passage_rows(self.data, batch.passages_QN.ravel(), self.form, LIMIT)


def new_model() -> Any:
    return new_module("mini", 0.0)["lm"].bert


def ours(questions: int, own: int, titles: bool, learning_rate: float = 1e-5) -> Step:
    """This project's update: drawing, packing, loss, gradients, optimiser."""
    encoder, source = Encoder(new_model(), "cls"), Source(questions, own, titles)
    optimiser = adam(encoder.model, fused=True, learning_rate=learning_rate)
    for parameter in encoder.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    nothing_QP = torch.zeros(questions, questions * own, dtype=torch.bool)

    def loss(vectors_RE: Tensor) -> Tensor:
        return losses.contrastive(vectors_RE[:questions], vectors_RE[questions:], nothing_QP, 1.0)

    def step(i: int) -> Figures:
        ids = source(i)
        length_R = np.array([len(row) for row in ids])
        given = rank_pieces(length_R, questions, True, None, BUDGET)
        keep = keeps(encoder.model.config, len(given), int(length_R.sum()), int(length_R.max()), "auto")

        def encode(piece: Piece) -> Tensor:
            return vectors(encoder, pack([ids[row] for row in piece.row_B], "cpu", bucket=True))

        value = backward(encoder.model, encode, given, (len(ids), encoder.dimension), loss, keep, "cpu")
        update_weights(optimiser)
        return {"loss": float(value), "tokens": float(length_R.sum())}

    return step


def theirs(questions: int, own: int, titles: bool, attention: str) -> Step:
    """The published way's update; its batches are padded in advance."""
    model, source = new_model(), Source(questions, own, titles)
    model.set_attn_implementation(attention)
    optimiser, pad = adam(model, fused=False), source.data.specials.pad
    batches = [source(i) for i in range(BATCHES)]
    given = [
        (published.filled(ids[:questions], QUESTION, pad), published.filled(ids[questions:], LIMIT, pad))
        for ids in batches
    ]

    def step(i: int) -> Figures:
        optimiser.zero_grad()
        loss = published.biencoder(model, *given[i % BATCHES])
        optimiser.step()
        return {"loss": float(loss)}

    return step


def against_published() -> float:
    for questions, own, titles in ((32, 2, False), (8, 8, True)):
        against(questions, own, titles)
    return against(8, 8, titles=False)


def against(questions: int, own: int, titles: bool) -> float:
    given = {"questions": questions, "own": own, "titles": titles}
    ways = {
        "published": Way("benchmarks.finetune_step:theirs", {**given, "attention": "eager"}, tuned=False),
        "published, SDPA": Way("benchmarks.finetune_step:theirs", {**given, "attention": "sdpa"}, tuned=False),
        "ours": Way("benchmarks.finetune_step:ours", given, tuned=True),
    }
    figures = compare_steps(ways, ROUNDS)
    eager, sdpa = (ratio(figures[name], figures["ours"]) for name in ("published", "published, SDPA"))
    full = questions * (QUESTION + own * LIMIT)
    real = median(x["tokens"] for x in figures["ours"]) / full
    text = f"{questions} x {own}{' with titles' if titles else ''}, {real:.0%} of {full:,} tokens real"
    print(f"{text}: {eager:.2f}, against SDPA {sdpa:.2f}", file=sys.stderr)
    return eager


ROWS = {"finetune_step": against_published}
