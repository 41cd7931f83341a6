"""What the program should reach on an H100 with BERT base, and whether it does; tables of the figures."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple


class Target(NamedTuple):
    work: str
    path: tuple[str, ...]
    """Where the figure is among the parts."""
    floor: float
    """Must be reached."""
    aim: float
    least: bool = False
    """Whether less is better."""


TARGETS = (
    Target("coCondenser, 2,048 documents, gradient cache: MFU", ("cocondenser_cached", "ours", "mfu"), 0.30, 0.35),
    Target("coCondenser, 512 documents, graphs: MFU", ("cocondenser_graphs", "ours", "mfu"), 0.38, 0.43),
    Target("Condenser: MFU", ("condenser", "ours", "mfu"), 0.38, 0.43),
    Target("fine-tuning, 64 x 8: MFU", ("finetuning_64x8", "ours", "mfu"), 0.36, 0.40),
    Target("fine-tuning, 8 x 8: MFU", ("finetuning_8x8", "ours", "mfu"), 0.28, 0.35),
    Target("encoding: MFU", ("encoding", "ours", "mfu"), 0.40, 0.50),
    Target(
        "search of MS MARCO's training questions, k = 210: minutes", ("search", "k=210", "marco_minutes"), 3, 2, True
    ),
    Target("kernels of a chunk with graphs", ("kernels", "kernels_per_chunk"), 700, 500, True),
)


def judge(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each target: work, value (None: not measured), floor, aim, result."""
    return [
        {
            "work": target.work,
            "value": (value := figure(parts, target.path)),
            "floor": target.floor,
            "aim": target.aim,
            "result": result(target, value),
        }
        for target in TARGETS
    ]


def figure(parts: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = parts
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def result(target: Target, value: float | None) -> str:
    if value is None:
        return "not measured"

    def reaches(goal: float) -> bool:
        return value <= goal if target.least else value >= goal

    if reaches(target.aim):
        return "aim reached"
    return "floor reached" if reaches(target.floor) else "floor not reached"


def table(rows: list[dict[str, Any]], title: str) -> str:
    """Returns the rows as a Markdown table."""
    lines = [f"| {title} | value | floor | aim | |", "|---|---|---|---|---|"]
    for row in rows:
        written = partial(number, share=row["work"].endswith("MFU"))
        value = "" if row["value"] is None else written(row["value"])
        lines.append(f"| {row['work']} | {value} | {written(row['floor'])} | {written(row['aim'])} | {row['result']} |")
    return "\n".join(lines)


def number(value: float, share: bool) -> str:
    return f"{100 * value:.1f} %" if share else f"{value:,.1f}".removesuffix(".0")


def overview(parts: Mapping[str, Any]) -> str:
    """Returns the main figures of our trainings and of encoding as a Markdown table."""
    lines = ["| part | ms | host ms | tokens/s | MFU | peak |", "|---|---|---|---|---|---|"]
    for name, figures in parts.items():
        ours = figures.get("ours", {})
        if "ms" in ours:
            times = f"{ours['ms']:,.0f} | {optional(ours['host_ms'], '{:,.0f}')} | {ours['tokens_per_second']:,.0f}"
            shares = f"{optional(ours['mfu'], '{:.1%}')} | {optional(ours['peak_GiB'], '{:.1f} GiB')}"
            lines.append(f"| {name} | {times} | {shares} |")
    return "\n".join(lines)


def optional(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
