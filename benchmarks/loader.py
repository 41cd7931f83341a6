"""Masks and batches: against a loop over tokens, and as a share of a step's time (4 x 256, 32 spans, one thread)."""

import random
import sys
import time
from statistics import median

import numpy as np

from benchmarks.paired import Way, ask, start
from benchmarks.steps import LIMIT, Source, Step

ROUNDS = 40


def looped(source: Source, i: int) -> list[tuple[list[int], list[int]]]:
    """(padded ids, labels) of each sequence, token by token: whole words, 15 %, 80/10/10."""
    data, specials, out = source.data, source.data.specials, []
    draw = random.Random(i)
    row_S = np.random.default_rng(i).choice(len(source.begin_N), source.sequences, replace=False, shuffle=False)
    for begin, length in zip(source.begin_N[row_S].tolist(), source.length_N[row_S].tolist(), strict=True):
        length = min(length // 2, LIMIT - 2)
        ids = data.passages.tokens[begin : begin + length].tolist()
        words: list[list[int]] = []
        for place, starts in enumerate(data.passages.word_starts[begin : begin + length].tolist()):
            if starts or not words:
                words.append([place])
            else:
                words[-1].append(place)
        draw.shuffle(words)
        wanted, chosen = max(1, round(0.15 * length)), set()
        for word in words:
            if len(chosen) >= wanted:
                break
            if len(chosen) + len(word) <= wanted or not chosen:
                chosen.update(word)
        labels = [-100] * LIMIT
        row = [specials.cls, *ids, specials.sep] + [specials.pad] * (LIMIT - length - 2)
        for place in chosen:
            labels[place + 1] = ids[place]
            kind = draw.random()
            if kind < 0.8:
                row[place + 1] = specials.mask
            elif kind < 0.9:
                row[place + 1] = draw.randrange(specials.vocab_size)
        out.append((row, labels))
    return out


def collate() -> float:
    source = Source("spans", 32)
    ratios = []
    for i in range(ROUNDS):
        started = time.perf_counter()
        looped(source, i)
        between = time.perf_counter()
        source(i)
        ended = time.perf_counter()
        ratios.append((between - started) / (ended - between))
    return median(ratios)


def batches() -> Step:
    """Makes a batch and nothing else."""
    source = Source("spans", 32)

    def step(i: int) -> dict[str, float]:
        source(i)
        return {}

    return step


def share() -> float:
    given = {"shape": "mini", "kind": "spans", "sequences": 32, "pairs": True}
    whole = start(Way("benchmarks.steps:ours", given, tuned=True))
    loading = start(Way("benchmarks.loader:batches", {}, tuned=True))
    shares = []
    try:
        for i in range(ROUNDS // 4):
            shares.append(ask(loading, i)["seconds"] / ask(whole, i)["seconds"])
    finally:
        for process in (whole, loading):
            process.kill()
            process.wait()
    print(f"shares {min(shares):.4f} to {max(shares):.4f}", file=sys.stderr)
    return median(shares[1:])


ROWS = {"collate": collate, "loader_share": share}
