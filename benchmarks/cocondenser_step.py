"""A step of coCondenser at 64 spans, 4 x 256, one thread, against the published way with its gradient cache."""

import sys

from benchmarks.paired import Way, interleave, ratio, seconds
from benchmarks.steps import BATCHES, agree

ROUNDS, CHUNK = 4, 32


def compare() -> float:
    given = {"shape": "mini", "kind": "spans", "sequences": 64, "pairs": True}
    ways = {
        "published": Way("benchmarks.steps:theirs", {**given, "chunk": CHUNK}, tuned=False),
        "ours": Way("benchmarks.steps:ours", given, tuned=True),
        "ours, cached": Way("benchmarks.steps:ours", {**given, "cached": True}, tuned=True),
    }
    figures = interleave(ways, ROUNDS, BATCHES)
    agree(figures)
    times = ", ".join(f"{name} {seconds(rows):.2f} s" for name, rows in figures.items())
    cached = ratio(figures["published"], figures["ours, cached"])
    print(f"{times}; cached {cached:.2f}", file=sys.stderr)
    return ratio(figures["published"], figures["ours"])


ROWS = {"cocondenser_step": compare}
