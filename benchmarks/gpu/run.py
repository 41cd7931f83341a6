"""Runs the parts within a time limit and writes the results after each of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.gpu import targets
from benchmarks.gpu.clock import OutOfTime, free
from benchmarks.gpu.compare import one_line
from benchmarks.gpu.inputs import SIZES
from benchmarks.gpu.parts import Part, parts
from pipeline.training import flops

STARTED = time.monotonic()
END = 0.97
"""Share of the seconds for the parts; the rest is for Python's start and end."""
LEAST = 0.6
"""Share of its own time that a part needs to begin."""
LATE = 1.5
"""Shares of its own time after which a part is stopped."""


def run(shape: str, device: str, seconds: float, out: Path, only: Sequence[str] = ()) -> None:
    """Measures all parts, or those that `only` names; prints the table of the targets. SystemExit if a part failed."""
    all_parts = parts(SIZES[shape], device)
    check_names(only, all_parts)
    out.parent.mkdir(parents=True, exist_ok=True)
    chosen = {name: part for name, part in all_parts.items() if not only or name in only}
    results: dict[str, Any] = {"simulated": False, **machine(device), "shape": shape, "parts": {}}
    for name, figures in measured(chosen, STARTED + END * seconds):
        results["parts"][name] = figures
        if device == "cuda":
            free(device)
        results |= {"seconds": time.monotonic() - STARTED, "targets": targets.judge(results["parts"])}
        write(results, out)
        print(f"{time.monotonic() - STARTED:5.0f} s  {name}: {short(figures)}", file=sys.stderr, flush=True)
    print(targets.table(results["targets"], results["device"]))
    print(f"\n{targets.overview(results['parts'])}")
    end_if_failed(results["parts"])


def check_names(only: Sequence[str], known: Iterable[str]) -> None:
    """SystemExit if a name is not that of a part."""
    if unknown := [name for name in only if name not in known]:
        sys.exit(f"--only {unknown[0]}: no such part; there are {', '.join(known)}")


def end_if_failed(parts: Mapping[str, Mapping[str, Any]]) -> None:
    """SystemExit with the names of the parts that failed."""
    failed = [name for name, figures in parts.items() if figures.get("status") == "failed"]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measured(chosen: Mapping[str, Part], end: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the name of each part and its figures, with `status`: done, failed, stopped or skipped.

    Each part has a share of the time until `end` (`time.monotonic`); what it leaves is for the later parts.
    """
    started, total, before = time.monotonic(), sum(part.weight for part in chosen.values()), 0.0
    for name, part in chosen.items():
        before += part.weight
        share = (end - started) * part.weight / total
        stop = started + (end - started) * before / total
        began = time.monotonic()
        if stop - began < LEAST * share:
            yield name, {"status": "skipped", "reason": "no time left"}
            continue
        figures = attempt(part, stop, min(end, began + max(stop - began, LATE * share)))
        yield name, {**figures, "seconds": time.monotonic() - began}


def attempt(part: Part, stop: float, limit: float) -> dict[str, Any]:
    """Returns the figures of a part, or its error; stops it at the time `limit`."""
    try:
        with alarm(limit - time.monotonic()):
            figures = part.measure(stop)
    except OutOfTime:
        return {"status": "stopped", "reason": "its time was over"}
    except Exception as error:  # one part must not end the others
        return {"status": "failed", "error": one_line(error)}
    return {"status": "skipped" if "skipped" in figures else "done", **figures}


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the block after `seconds`."""

    def ring(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def machine(device: str) -> dict[str, Any]:
    """Returns what was measured on."""
    versions: dict[str, Any] = {"torch": torch.__version__, "transformers": transformers.__version__}
    versions["peak_operations_per_second"] = flops.peak(device)  # what the utilisations (MFU) are shares of
    if device == "cpu":
        return {"device": "cpu", "driver": None, "cuda": None, **versions}
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    name = torch.cuda.get_device_name()
    return {"device": name, "memory_GiB": memory, "driver": driver(), "cuda": torch.version.cuda, **versions}


def driver() -> str | None:
    """Returns the version of the GPU's driver; None if `nvidia-smi` does not give it."""
    program = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else None


def write(results: Mapping[str, Any], out: Path) -> None:
    """Writes the file at once: a kill leaves the version before."""
    part = out.with_name(f"{out.name}.part")
    part.write_text(json.dumps(results, indent=2) + "\n")
    os.replace(part, out)


def short(figures: Mapping[str, Any]) -> str:
    """Returns the main figures of a part in one line."""
    if figures["status"] != "done":
        return f"{figures['status']}: {figures.get('error') or figures.get('reason') or figures.get('skipped')}"
    ours = figures.get("ours", {})
    phrases = [f"{ours['ms']:.1f} ms"] if "ms" in ours else []
    phrases += [f"MFU {ours['mfu']:.1%}"] if ours.get("mfu") else []
    for name, other in figures.get("baselines", {}).items():
        ratio = other.get("ratio")
        phrases.append(f"{name} {ratio:.2f} x" if ratio else f"{name}: {other.get('error', 'computes something else')}")
    return ", ".join(phrases) or "done"
