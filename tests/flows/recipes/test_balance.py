"""Every rank gets about as many tokens of an update as the others, in every recipe's trainings."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from flows.sentences.recipe import resolve_sentences
from pipeline.finetune.step import rank_pieces
from pipeline.modeling.packing import share
from pipeline.runtime import ranks
from pipeline.runtime.work import Machine
from pipeline.training.memory import CPU_BUDGET, CUDA_BUDGET

ENOUGH = 6
"""Sequences for each rank with which no rank has a tenth more than the mean."""


class Update(NamedTuple):
    """An update's sequences, with lengths like those of the recipe's texts."""

    stage: str
    length_S: np.ndarray
    questions: int | None = None
    """First sequences, which an untied encoder reads separately; None: pre-training."""
    tied: bool = True


def updates(recipe: Recipe, rng: np.random.Generator) -> Iterator[Update]:
    def draw(shortest: int, longest: int, number: int) -> np.ndarray:
        return rng.integers(shortest, longest + 1, number)

    blocks, spans, ict = recipe.condenser, recipe.cocondenser, recipe.ict
    if blocks.budget:
        number = blocks.batch_blocks or int(blocks.batch_tokens / (0.85 * blocks.length))
        yield Update("condenser", draw(int(0.7 * blocks.length), blocks.length, number))
    if spans.budget:
        number = spans.batch_documents or spans.batch_tokens // (spans.span_min + spans.span_max + 4)
        length_S = draw(spans.span_min + 2, spans.span_max + 2, 2 * number)
        if not spans.random_lengths:  # most documents are long enough
            length_S = np.where(rng.random(number) < 0.6, spans.span_max + 2, length_S[:number]).repeat(2)
        yield Update("cocondenser", length_S)
    if ict.budget:
        segments = draw(ict.segment_min, ict.segment_tokens // 2, ict.batch_passages)
        yield Update("ict", np.concatenate([segments, draw(20, ict.passage_tokens, ict.batch_passages)]))
    for name in ("stage1", "stage2"):
        own: Any = getattr(recipe, name)
        passages = own.batch_queries * (1 + own.negatives_per_query)
        lengths = draw(6, 16, own.batch_queries), draw(int(0.4 * own.passage_tokens), own.passage_tokens, passages)
        yield Update(name, np.concatenate(lengths), own.batch_queries, recipe.encoder.tied)
    pairs = recipe.cross_encoder.batch_queries * (1 + recipe.cross_encoder.negatives_per_query)
    longest = recipe.cross_encoder.passage_tokens
    yield Update("cross_encoder", draw(int(0.4 * longest) + 6, longest + 16, pairs), 0)


def tokens_of_ranks(
    update: Update, world: int, machine: Machine, budget: int, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    chunk, tokens = machine.gradient_cache_chunk, []
    monkeypatch.setattr(ranks, "world", lambda: world)
    for rank in range(world):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        if update.questions is None:
            rows = [row_B for _, row_B in share(update.length_S, chunk, budget)]
        else:
            pieces = rank_pieces(update.length_S, update.questions, update.tied, chunk, budget)
            rows = [piece.row_B for piece in pieces]
        tokens.append(sum(int(update.length_S[row_B].sum()) for row_B in rows))
    assert sum(tokens) == update.length_S.sum()
    return tokens


def check(update: Update, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for world in range(1, 9):
        for budget in (CPU_BUDGET, CUDA_BUDGET) if machine.token_budget == "auto" else (machine.token_budget,):
            tokens = tokens_of_ranks(update, world, machine, budget, monkeypatch)
            mean, longest = sum(tokens) / world, int(update.length_S.max())
            # The few long sequences of a small update cannot be divided.
            enough = len(update.length_S) >= ENOUGH * world
            assert max(tokens) <= (1.1 * mean if enough else mean + longest / 2), (update.stage, world, tokens)


@pytest.mark.parametrize("name", yaml_layers.named())
def test_the_fullest_rank_has_at_most_a_tenth_more_than_the_mean(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = resolve(name)
    for update in updates(recipe, np.random.default_rng(0)):
        check(update, recipe.machine, monkeypatch)


def test_sentence_trainings_are_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = resolve_sentences("stsb")
    length_S = np.random.default_rng(0).integers(8, 40, 2 * recipe.training.batch)
    check(Update("tune", length_S, 0), recipe.machine, monkeypatch)
