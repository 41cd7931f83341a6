"""A step of Condenser against the published way, and against this machine's matrix products.

Thirty-two sequences a step, one thread. `_spans`: lengths as coCondenser draws them, 4 x 256. `_blocks`: packed
sentences, 4 x 256. `_minilm`: spans, 6 x 384. `_sgemm`: the operations that a 4 x 256 step needs, by the time it takes.
"""

import sys
from statistics import median

from benchmarks.paired import Way, ratio
from benchmarks.steps import compare_steps

ROUNDS = 4


def against_published(shape: str, kind: str) -> float:
    given = {"shape": shape, "kind": kind, "sequences": 32}
    ways = {
        "published": Way("benchmarks.steps:theirs", given, tuned=False),
        "ours": Way("benchmarks.steps:ours", given, tuned=True),
        "published, allocator tuned": Way("benchmarks.steps:theirs", given, tuned=True),
    }
    figures = compare_steps(ways, ROUNDS)
    tuned = ratio(figures["published, allocator tuned"], figures["ours"])
    print(f"against the published way in the same environment {tuned:.2f}", file=sys.stderr)
    return ratio(figures["published"], figures["ours"])


def against_sgemm() -> float:
    ways = {
        "ours": Way("benchmarks.steps:ours", {"shape": "mini", "kind": "spans", "sequences": 32}, tuned=True),
        "sgemm": Way("benchmarks.steps:sgemm", {}, tuned=True),
    }
    figures = compare_steps(ways, 3 * ROUNDS)
    rates = [x["operations"] / x["seconds"] for x in figures["ours"]]
    print(
        f"{median(rates) / 1e9:.1f} of {median(x['rate'] for x in figures['sgemm']) / 1e9:.1f} GFLOP/s", file=sys.stderr
    )
    return median(rate / x["rate"] for rate, x in zip(rates, figures["sgemm"], strict=True))


ROWS = {
    "condenser_step_spans": lambda: against_published("mini", "spans"),
    "condenser_step_blocks": lambda: against_published("mini", "blocks"),
    "condenser_step_minilm": lambda: against_published("minilm", "spans"),
    "condenser_step_sgemm": against_sgemm,
}
