"""The lineage of a run on the page: what it was built from, with time and GPUs."""

from collections.abc import Sequence
from typing import Any

from pipeline.runtime.lineage import Step

SHOWN = 12
"""Characters of a code's digest that are shown."""


def build_summary(steps: Sequence[Step]) -> dict[str, Any]:
    """Returns the page's values: rows, totals, versions."""
    known = [step for step in steps if step.seconds is not None]
    first = {step.digest: step.node for step in reversed(steps)}
    days = sorted({step.created[:10] for step in known})
    return {
        "rows": [
            {
                "node": step_name(step, first[step.digest]),
                "stage": step.stage,
                "digest": step.digest,
                "code": step.code[:SHOWN],
                "kept": step.kept,
                "time": "" if step.seconds is None else duration(step.seconds),
                "precision": step.precision or "",
                "gpu_hours": "" if step.gpus is None or step.seconds is None else hours(step.gpus * step.seconds),
            }
            for step in steps
        ],
        "time": duration(sum(step.seconds or 0.0 for step in known)),
        "gpu_hours": hours(sum((step.gpus or 0) * (step.seconds or 0.0) for step in known)),
        "unknown_gpus": sum(step.gpus is None for step in known),
        "unknown": len(steps) - len(known),
        "kept": sum(step.kept for step in steps),
        "days": " to ".join(days[:1] + days[1:][-1:]),
        "versions": versions(steps),
    }


def step_name(step: Step, first: str) -> str:
    """Returns the node's name; if an earlier node has equal bytes, with that node's name."""
    return step.node if step.node == first else f"{step.node} (equal to {first})"


def notices(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """Returns (node, line) of every notice, in the order of the steps."""
    return [(step.node, line) for step in steps for line in step.notices]


def versions(steps: Sequence[Step]) -> dict[str, str]:
    """Returns {library: its version, or all its versions if steps differ}."""
    versions_of: dict[str, set[str]] = {}
    for step in steps:
        for name, version in step.versions.items():
            versions_of.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(versions_of[name])) for name in sorted(versions_of)}


def duration(seconds: float) -> str:
    """Returns `0.4 s`, `12 s`, `3 min 20 s`, `5 h 07 min`."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 3599.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60:02} s"
    return f"{round(seconds / 60) // 60:,} h {round(seconds / 60) % 60:02} min"


def hours(seconds: float) -> str:
    """Returns hours as `0`, `0.25`, `31.4`."""
    value = seconds / 3600
    return "0" if value == 0 else "< 0.01" if value < 0.005 else f"{value:.2f}" if value < 9.995 else f"{value:,.1f}"
