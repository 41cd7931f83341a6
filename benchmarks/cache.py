"""Cost of the gradient cache in time (256 spans, 4 x 256), and its peak memory at 2,048 spans over that at 512."""

import sys
from typing import Any

from benchmarks.live_bytes import LiveBytes
from benchmarks.paired import Figures, Step, Way, ask, ratio, running
from benchmarks.steps import compare_steps, ours

ROUNDS = 4
GIVEN: dict[str, Any] = {"shape": "mini", "kind": "spans", "pairs": True}


def cost() -> float:
    ways = {
        cache: Way("benchmarks.steps:ours", {**GIVEN, "sequences": 256, "cache": cache}, tuned=True)
        for cache in ("always", "never")
    }
    figures = compare_steps(ways, ROUNDS)
    return ratio(figures["always"], figures["never"])


def peak_step(sequences: int) -> Step:
    """Returns a cached step that reports its `peak`: the most bytes of tensors and arrays that it holds at once.

    Weights and their gradients exist before and do not count; Adam's moments appear after the peak.
    """
    step = ours(**GIVEN, sequences=sequences, cache="always")
    step_of_two = ours(**GIVEN, sequences=2, cache="always")
    step_of_two(0)  # what libraries load and keep at their first use

    def measured_step(i: int) -> Figures:
        with LiveBytes() as live:
            figures = step(i)
        return figures | {"peak": live.peak}

    return measured_step


def memory() -> float:
    peaks = {}
    for sequences in (512, 2048):
        with running({"cached": Way("benchmarks.cache:peak_step", {"sequences": sequences}, tuned=True)}) as processes:
            peaks[sequences] = ask(processes["cached"], 0)["peak"]
    print(", ".join(f"{n:,} spans {peak / 2**20:.1f} MiB" for n, peak in peaks.items()), file=sys.stderr)
    return peaks[2048] / peaks[512]


ROWS = {"cache_cost": cost, "cache_memory": memory}
