"""Times several ways of doing the same work, in turn, each in its own process.

    python -m benchmarks.paired benchmarks.steps:ours '{"shape": "mini", "kind": "spans", "sequences": 32}' float32
    runs one such process

A way is a function of keyword arguments that returns a step: step(i) does the work once and returns figures. The
process runs steps 0, 1, ... on request, and reports the seconds of each.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from statistics import median
from typing import IO, Any, NamedTuple, cast

from pipeline.runtime.launch import TRAINING, child_environment
from pipeline.runtime.precision import Precision, use_precision
from pipeline.runtime.processes import ending

Figures = dict[str, float]
Step = Callable[[int], Figures]
TAIL = 20
"""Lines of a failed process's stderr that are shown: the end of a traceback."""


class Skipped(Exception):
    """This machine cannot run a benchmark; the message says why."""


class Way(NamedTuple):
    function: str
    """"module:name"."""
    arguments: Mapping[str, Any]
    tuned: bool
    """Whether it runs in the environment of this project's processes; otherwise in the usual one."""
    kept: int = TRAINING
    """Memory that the allocator of a tuned process keeps (pipeline.runtime.launch)."""
    precision: Precision = "float32"
    """Of this program's models."""


class Running(NamedTuple):
    """The process of a way."""

    function: str
    process: subprocess.Popen[str]
    errors: IO[str]
    """Its stderr, a file: a pipe that is not read would stop the process."""


@contextmanager
def running(ways: Mapping[str, Way]) -> Iterator[dict[str, Running]]:
    """Starts a process for each way; ends them all with the block."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(_start(way)) for name, way in ways.items()}


@contextmanager
def _start(way: Way) -> Iterator[Running]:
    environment = child_environment("cpu", 1, way.kept) if way.tuned else {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.paired", way.function, json.dumps(dict(way.arguments)), way.precision],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Running(way.function, process, errors)
        finally:
            process.kill()
            with suppress(BrokenPipeError):
                process.communicate()  # closes the pipes


def ask(way: Running, step: int) -> Figures:
    """Runs one step; returns its figures and `seconds`. SystemExit, with the process's own error, if it has ended."""
    assert way.process.stdin is not None
    assert way.process.stdout is not None
    try:
        way.process.stdin.write(f"{step}\n")
        way.process.stdin.flush()
        line = way.process.stdout.readline()
    except BrokenPipeError:  # it ended before it read the number
        line = ""
    if not line:
        raise SystemExit(f"{way.function} ended, {ending(way.process.wait())}:\n{last_lines(way.errors)}")
    return json.loads(line)


def last_lines(errors: IO[str]) -> str:
    """Returns the end of a process's stderr."""
    errors.seek(0)
    return "".join(errors.readlines()[-TAIL:]).rstrip()


def interleave(ways: Mapping[str, Way], rounds: int, batches: int) -> dict[str, list[Figures]]:
    """Returns each way's figures of steps 0, 1, ..., run in turn; one earlier step does not count.

    Step i works on batch i % `batches`.
    """
    with running(ways) as processes:
        for process in processes.values():
            ask(process, 0)
        figures: dict[str, list[Figures]] = {name: [] for name in ways}
        for i in range(rounds):
            for name, process in processes.items():
                figures[name].append(ask(process, i % batches))
        return figures


def seconds(figures: list[Figures]) -> float:
    """Returns the seconds of the median step."""
    return median(x["seconds"] for x in figures)


def ratio(slow: list[Figures], fast: list[Figures]) -> float:
    """Returns the median of the rounds' ratios: both sides of a round have the same batch and the same load."""
    return median(a["seconds"] / b["seconds"] for a, b in zip(slow, fast, strict=True))


def main() -> None:
    module, name = sys.argv[1].split(":")
    use_precision(cast(Precision, sys.argv[3]))
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
