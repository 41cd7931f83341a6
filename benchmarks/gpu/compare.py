"""Compares ways of doing the same work: what they compute, and their times in turn."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.gpu.clock import Computed, OutOfTime, Timing, Way, free

TOLERANCE = {"cuda": (0.01, 0.99), "cpu": (1e-4, 0.9999)}
"""Device -> (largest relative difference of two losses, least cosine of two gradients). bfloat16 has 8 bits."""


def agreement(ours: Computed, theirs: Computed, device: str) -> dict[str, Any]:
    """Returns how far two ways agree, and as `equal_work` whether they do within the device's precision."""
    difference = 0.0
    if ours.loss is not None and theirs.loss is not None:
        difference = abs(ours.loss - theirs.loss) / max(abs(theirs.loss), 1e-9)
    cosine = float(F.cosine_similarity(ours.gradient.double(), theirs.gradient.double(), dim=0))
    ratio = float(ours.gradient.norm() / theirs.gradient.norm())
    worst, least = TOLERANCE[device]
    return {
        "loss": theirs.loss,
        "loss_difference": difference,
        "cosine": cosine,
        "norm_ratio": ratio,
        "equal_work": difference <= worst and cosine >= least and abs(ratio - 1) <= 5 * worst,
    }


def compare(
    ours: Way, builders: Mapping[str, Callable[[], Way]], device: str, rounds: int, stop: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (our figures, figures of each other way), from turns ours, theirs, ours, theirs ...

    There are at most `rounds` turns of each way, and no more that would end after `stop` (`time.monotonic`). A way
    that cannot be built or run, or has no turn before OutOfTime is raised, has an `error`. Raises what `ours` raises.
    """
    expected, first = ours.compute(), ours.turn()
    ways = {"ours": ours}
    found: dict[str, dict[str, Any]] = {name: {"error": "no time left"} for name in builders}
    timings: dict[str, list[Timing]] = {name: [] for name in ("ours", *builders)}
    with suppress(OutOfTime):
        for name, build in builders.items():
            try:
                way = build()
                found[name] = agreement(expected, way.compute(), device)
                ways[name] = way
            except Exception as error:  # a baseline that does not fit the memory must not hide our figures
                found[name] = {"error": one_line(error)}
            free(device)
        expected = Computed(expected.loss, torch.empty(0))  # a gradient takes memory
        take_turns(ways, timings, found, rounds, stop)
    ours_timings = timings["ours"] or [first]
    for name in builders:
        if timings[name] and "error" not in found[name]:
            ratio = median(x.seconds for x in timings[name]) / median(x.seconds for x in ours_timings)
            found[name] |= {**summary(timings[name]), "ratio": ratio if found[name]["equal_work"] else None}
        else:
            found[name].setdefault("error", "no time left")
    return {"loss": expected.loss, **summary(ours_timings)}, found


def take_turns(
    ways: dict[str, Way],
    timings: Mapping[str, list[Timing]],
    found: dict[str, dict[str, Any]],
    rounds: int,
    stop: float,
) -> None:
    """Adds turns to `timings`. A way that raises leaves `ways` and has an error in `found`, except `ours`."""
    for _ in range(rounds):
        began = time.monotonic()
        for name in list(ways):
            try:
                timings[name].append(ways[name].turn())
            except Exception as error:
                if name == "ours":
                    raise
                found[name] = {"error": one_line(error)}
                del ways[name]
        if 2 * time.monotonic() - began > stop:  # another round takes as long as this one
            break


def summary(timings: list[Timing]) -> dict[str, Any]:
    """Returns the medians of the turns."""
    hosts = [x.host_seconds for x in timings if x.host_seconds is not None]
    peaks = [x.peak for x in timings if x.peak is not None]
    out: dict[str, Any] = {
        "ms": 1000 * median(x.seconds for x in timings),
        "host_ms": 1000 * median(hosts) if hosts else None,
        "peak_GiB": max(peaks) / 2**30 if peaks else None,
        "turns": len(timings),
    }
    return out | dict(timings[-1].work)


def rates(figures: dict[str, Any], work: Mapping[str, float], peak: float | None, units: Mapping[str, float]) -> None:
    """Adds tokens/s, the `units` per second and the utilisation to a way's `figures`.

    `work`: of our way. The utilisation of every way counts our operations: those that the loss needs.
    """
    if "ms" not in figures:
        return
    seconds = figures["ms"] / 1000
    figures["tokens_per_second"] = work["tokens"] / seconds
    figures["mfu"] = work["operations"] / seconds / peak if peak else None
    figures.update({f"{name}_per_second": number / seconds for name, number in units.items()})


def one_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
