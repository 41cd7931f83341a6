"""Cost of the gradient cache in time (256 spans, 4 x 256), and its peak memory at 2,048 spans over that at 512."""

import resource
import sys
from pathlib import Path
from typing import Any

from benchmarks.paired import Figures, Step, Way, ask, ratio, start_way
from benchmarks.peak import peak_bytes
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
    """Returns a cached step that reports the peak memory of the process above its earlier size."""
    step = ours(**GIVEN, sequences=sequences, cache="always")
    step_of_two = ours(**GIVEN, sequences=2, cache="always")
    step_of_two(0)  # memory that the libraries need at their first use
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize()

    def measured_step(i: int) -> Figures:
        figures = step(i)
        return figures | {"peak": peak_bytes() - before}

    return measured_step


def memory() -> float:
    peaks = {}
    for sequences in (512, 2048):
        process = start_way(Way("benchmarks.cache:peak_step", {"sequences": sequences}, tuned=True))
        peaks[sequences] = ask(process, 0)["peak"]
        process.kill()
        process.wait()
    print(", ".join(f"{n:,} spans {peak / 2**20:.0f} MiB" for n, peak in peaks.items()), file=sys.stderr)
    return peaks[2048] / peaks[512]


ROWS = {"cache_cost": cost, "cache_memory": memory}
