"""Ways of a benchmark that fail, or write much."""

import sys

from benchmarks.paired import Figures, Step


def at_start() -> Step:
    raise ValueError("no such model")


def at_step() -> Step:
    def step(i: int) -> Figures:
        raise ValueError(f"step {i} fails")

    return step


def loud() -> Step:
    """Writes more to stderr than a pipe holds."""

    def step(i: int) -> Figures:
        print("x" * 1_000_000, file=sys.stderr)
        return {"i": i}

    return step
