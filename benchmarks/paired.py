"""Times several ways of doing the same work, in turn, each in its own process.

    python -m benchmarks.paired benchmarks.steps:ours '{"shape": "mini", "kind": "spans", "sequences": 32}'
    runs one such process

A way is a function of keyword arguments that returns a step: step(i) does the work once and returns figures. The
process runs steps 0, 1, ... on request, and reports the seconds of each.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

from pipeline.runtime.launch import TRAINING, child_environment

Figures = dict[str, float]
Step = Callable[[int], Figures]


class Way(NamedTuple):
    function: str
    """"module:name"."""
    arguments: Mapping[str, Any]
    tuned: bool
    """Whether it runs in the environment of this project's processes; otherwise in the usual one."""
    kept: int = TRAINING
    """Memory that the allocator of a tuned process keeps (pipeline.runtime.launch)."""


def start_way(way: Way) -> subprocess.Popen[str]:
    environment = child_environment("cpu", 1, way.kept) if way.tuned else {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.paired", way.function, json.dumps(dict(way.arguments))],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str], step: int) -> Figures:
    """Runs one step; returns its figures and `seconds`."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{step}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process of the benchmark ended with {process.wait()}")
    return json.loads(line)


def interleave(ways: Mapping[str, Way], rounds: int, batches: int) -> dict[str, list[Figures]]:
    """Returns each way's figures of steps 0, 1, ..., run in turn; one earlier step does not count.

    Step i works on batch i % `batches`.
    """
    processes = {name: start_way(way) for name, way in ways.items()}
    try:
        for process in processes.values():
            ask(process, 0)
        figures: dict[str, list[Figures]] = {name: [] for name in ways}
        for i in range(rounds):
            for name, process in processes.items():
                figures[name].append(ask(process, i % batches))
        return figures
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def seconds(figures: list[Figures]) -> float:
    """Returns the seconds of the median step."""
    return median(x["seconds"] for x in figures)


def ratio(slow: list[Figures], fast: list[Figures]) -> float:
    """Returns the median of the rounds' ratios: both sides of a round have the same batch and the same load."""
    return median(a["seconds"] / b["seconds"] for a, b in zip(slow, fast, strict=True))


def main() -> None:
    module, name = sys.argv[1].split(":")
    channel = os.dup(1)
    os.dup2(2, 1)
    step = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    for line in sys.stdin:
        started = time.perf_counter()
        figures = step(int(line))
        spent = time.perf_counter() - started
        os.write(channel, (json.dumps({"seconds": spent, **figures}) + "\n").encode())


if __name__ == "__main__":
    main()
