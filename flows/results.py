"""What a run says at its end, in the terminal and on the page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from rich import box

from artifacts.records import Ref
from flows.recipe import Recipe
from pipeline.evaluate import TABLE, estimate_text, shown_split, table
from tasks import page
from tasks.terminal import TERMINAL, say


def show(recipe: Recipe, refs: Mapping[str, Ref]) -> None:
    console = TERMINAL.get()
    metrics = read_metrics(refs)
    report = refs["report"].path / "report.html" if "report" in refs else None
    if metrics:
        if console:
            console.print()
            shown = table(metrics)
            shown.box, shown.pad_edge = box.SIMPLE_HEAD, False
            console.print(shown)
        page.best_effort(on_page, metrics, report)
        get_run_logger().info("results\n%s", markdown(metrics))
    if report:
        say(f"\nReport: {report}")
        get_run_logger().info("report: %s", report)
        question = recipe.example_question or "..."
        say(f'Next:   cocondenser search "{question}"')


def read_metrics(refs: Mapping[str, Ref]) -> dict[str, Any] | None:
    """The evaluation's metrics.json."""
    return json.loads((refs["evaluate"].path / "metrics.json").read_text()) if "evaluate" in refs else None


def on_page(metrics: Mapping[str, Any], report: Path | None) -> None:
    from prefect.artifacts import create_markdown_artifact

    where = f"\n\nThe whole report: `{report}`\n" if report else ""
    create_markdown_artifact(markdown(metrics) + where, key="results", description="Results and report")


def markdown(metrics: Mapping[str, Any]) -> str:
    """The final table."""
    split = shown_split(metrics)
    found = metrics["splits"][split]
    rows = [
        f"| {metrics['labels'][name]} | " + " | ".join(estimate_text(figures[measure]) for measure in TABLE) + " |"
        for name, figures in found["systems"].items()
    ]
    head = f"| {split}, {found['questions']:,} questions | " + " | ".join(TABLE.values()) + " |"
    return "\n".join([head, "|---" * (1 + len(TABLE)) + "|", *rows])
