"""A step of coCondenser with its gradient cache at 64 spans, 4 x 256, one thread, against the published way's."""

import sys

from benchmarks.paired import Way, ratio
from benchmarks.steps import compare_steps

ROUNDS, CHUNK = 4, 32
GIVEN = {"shape": "mini", "kind": "spans", "sequences": 64, "pairs": True}


def against_published() -> float:
    ways = {
        "published": Way("benchmarks.steps:theirs", {**GIVEN, "chunk": CHUNK}, tuned=False),
        "ours": Way("benchmarks.steps:ours", GIVEN, tuned=True),
        "ours, cached": Way("benchmarks.steps:ours", {**GIVEN, "cache": "always"}, tuned=True),
    }
    figures = compare_steps(ways, ROUNDS)
    print(f"without a cache, as this size fits: {ratio(figures['published'], figures['ours']):.2f}", file=sys.stderr)
    return ratio(figures["published"], figures["ours, cached"])


ROWS = {"cocondenser_step": against_published}
