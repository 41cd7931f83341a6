"""`cocondenser plan`: what a run would do."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flows.cli.options import (
    Json,
    RecipeName,
    Settings,
    StoreFolder,
    Until,
    columns,
    out,
    print_json,
    print_table,
    warn,
)
from flows.cli.running.model_options import Adapted, FromModel, OnCollection, recipe_settings

if TYPE_CHECKING:
    from flows.graph.plan import Step

ACTION_LABELS = {"reuse": "[cyan]reuse[/]", "build": "[green]build[/]", "unknown": "[yellow]?[/]"}
"""What a run would do with a stage, as a plan shows it."""
REASONS = 6
"""Lines per stage that say why it is built."""


def plan(
    recipe: RecipeName,
    model: FromModel = None,
    adapt: Adapted = False,
    collection: OnCollection = None,
    set: Settings = None,
    until: Until = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Show what a run would do and why, with an estimate of time and disk space.

    Times and sizes come from earlier builds.
    A stage that was never built has an estimate with one digit (~20 min) if it trains a model, encodes or scores.
    The estimate is the size of the texts over the speed of this machine, which is measured once, in a few seconds.
    Other stages that were never built have no estimate: their time is `?`.
    The stage `generate` shows its requests to a language model, and their cost if the recipe has a price.
    """
    from flows.dag import nodes
    from flows.graph.estimate import with_estimates
    from flows.graph.ineffective_settings import ineffective_settings
    from flows.graph.plan import plan as make_plan
    from flows.graph.preflight import missing_inputs
    from flows.graph.requests import with_requests
    from flows.graph.selection import select, store_to_fill
    from flows.recipes.recipe import resolve

    artifact_store = store_to_fill(store)
    settings = recipe_settings(store, recipe, set, model, collection, adapt)
    resolved = resolve(recipe, settings)
    for line in ineffective_settings(partial(resolve, recipe), settings, set or []):
        warn(line)
    dag = nodes(resolved)
    selected = select(dag, until, None)
    steps = make_plan(artifact_store, selected, resolved.name)
    to_build = [node for node, step in zip(selected, steps, strict=True) if step.action != "reuse"]
    problems = missing_inputs(dag, to_build)  # the same message as a run that refuses the recipe
    steps = [replace(step, why=problems.get(step.node) or step.why) for step in steps]
    steps = with_requests(with_estimates(steps, selected, resolved.machine), selected, artifact_store)
    if as_json:
        print_json([{**asdict(step), "ref": step.ref.digest if step.ref else None} for step in steps])
        return
    print_table(steps_table(steps))
    out.print(f"\n{steps_summary(steps)}", highlight=False)


def steps_table(steps: "Sequence[Step]") -> Table:
    """One row per stage."""
    from tasks.terminal import duration, rough_duration, size

    table = columns()
    for heading in ("stage", ""):
        table.add_column(heading)
    table.add_column("why", min_width=20)
    table.add_column("time", justify="right")
    table.add_column("disk", justify="right")
    for step in steps:
        more = len(step.why) - REASONS
        why = "\n".join(step.why[:REASONS]) + (f"\nand {more} more" if more > 0 else "")
        known = rough_duration if step.estimated else duration
        seconds = "?" if step.seconds is None else known(step.seconds)
        disk = "?" if step.bytes is None else size(step.bytes)
        estimate = ("", "") if step.action == "reuse" else (seconds, disk)
        table.add_row(escape(step.node), ACTION_LABELS[step.action], escape(why), *estimate)
    return table


def steps_summary(steps: "Sequence[Step]") -> str:
    """How many stages are reused, and the estimate for the others."""
    from pipeline.formatting import counted
    from tasks.terminal import duration, rough_duration, size

    to_build = [step for step in steps if step.action != "reuse"]
    reused = f"{len(steps) - len(to_build)} of {len(steps)} stages are reused"
    unknown = sum(step.seconds is None for step in to_build)
    if not to_build:
        return f"{reused}."
    if unknown == len(to_build):
        return f"{reused}. No estimate of time and disk: this recipe was never built in this store."
    seconds, disk = (sum(values) for values in zip(*((s.seconds or 0, s.bytes or 0) for s in to_build), strict=True))
    without = f" (without {counted(unknown, 'stages')} never built in this store)" if unknown else ""
    if any(step.estimated for step in to_build):
        source = "by the size of the texts and this machine's speed when it does nothing else"
        return f"{reused}, {rough_duration(seconds)}{without}, {source}."
    return f"{reused}, at most about {duration(seconds)} and {size(disk)}{without}."
