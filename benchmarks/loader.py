"""Masks and batches: against a loop over tokens (64 spans), and as a share of a step's time (4 x 256, 32 spans)."""

import random
import sys
import time
from statistics import median

import torch

from benchmarks.data import FOLDER
from benchmarks.paired import Figures, Step, Way, ask, running
from benchmarks.steps import LIMIT, Source
from pipeline.tokenization.tokenizer import read_tokenizer

ROUNDS = 40


def looped(source: Source, vocabulary: list[str], i: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (padded ids, labels) as the published collators build them, token by token; words by entries' text."""
    specials, ids, labels = source.data.specials, [], []
    draw = random.Random(i)
    begin_S, length_S, _ = source.draw(i)
    for begin, length in zip(begin_S.tolist(), length_S.tolist(), strict=True):
        span = source.data.passages.tokens[begin : begin + length].tolist()
        words: list[list[int]] = []
        for place, entry in enumerate(span):
            if words and vocabulary[entry].startswith("##"):
                words[-1].append(place)
            else:
                words.append([place])
        draw.shuffle(words)
        wanted = max(1, round(0.15 * length))
        chosen: set[int] = set()
        for word in words:
            if len(chosen) >= wanted:
                break
            if len(chosen) + len(word) <= wanted:
                chosen.update(word)
        row = torch.tensor([specials.cls, *span, specials.sep] + [specials.pad] * (LIMIT - length - 2))
        masked = torch.tensor([place - 1 in chosen for place in range(LIMIT)])
        label = torch.where(masked, row, -100)
        replaced = torch.bernoulli(torch.full((LIMIT,), 0.8)).bool() & masked
        row[replaced] = specials.mask
        drawn = torch.bernoulli(torch.full((LIMIT,), 0.5)).bool() & masked & ~replaced
        row[drawn] = torch.randint(specials.vocab_size, (LIMIT,))[drawn]
        ids.append(row)
        labels.append(label)
    return torch.stack(ids), torch.stack(labels)


def collate() -> float:
    """Returns the ratio at the demo's batch of 4,096 tokens; prints those of smaller and larger batches."""
    ratios = {sequences: against_loop(sequences) for sequences in (32, 64, 256)}
    text = ", ".join(f"{ratio:.1f} at {sequences} spans" for sequences, ratio in ratios.items())
    print(f"against a loop over tokens: {text}", file=sys.stderr)
    return ratios[64]


def against_loop(sequences: int) -> float:
    source = Source("spans", sequences)
    entries = read_tokenizer(FOLDER / "tokenizer").get_vocab()
    vocabulary = sorted(entries, key=entries.__getitem__)
    ratios = []
    for i in range(ROUNDS):
        started = time.perf_counter()
        looped(source, vocabulary, i)
        between = time.perf_counter()
        source(i)
        ended = time.perf_counter()
        ratios.append((between - started) / (ended - between))
    return median(ratios)


def batches() -> Step:
    """Builds a batch and nothing else."""
    source = Source("spans", 32)

    def step(i: int) -> Figures:
        source(i)
        return {}

    return step


def share() -> float:
    given = {"shape": "mini", "kind": "spans", "sequences": 32, "pairs": True}
    ways = {
        "whole": Way("benchmarks.steps:ours", given, tuned=True),
        "loading": Way("benchmarks.loader:batches", {}, tuned=True),
    }
    with running(ways) as processes:
        shares = [
            ask(processes["loading"], i)["seconds"] / ask(processes["whole"], i)["seconds"] for i in range(ROUNDS // 4)
        ]
    print(f"shares {min(shares):.4f} to {max(shares):.4f}", file=sys.stderr)
    return median(shares[1:])


ROWS = {"collate": collate, "loader_share": share}
