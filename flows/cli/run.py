"""`cocondenser run` and `cocondenser update`: the flow, once all that can be known to fail has been looked at."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import Device, Json, RecipeName, Settings, StoreFolder, Until, print_json, terminal
from flows.cli.prefect import prefect

if TYPE_CHECKING:
    from artifacts.records import Ref


def run(
    recipe: RecipeName,
    set: Settings = None,
    until: Until = None,
    only: Annotated[
        str | None, typer.Option(metavar="STAGE", help="The one stage to run; what it reads must be in the store.")
    ] = None,
    refresh: Annotated[
        list[str] | None, typer.Option(metavar="STAGE", help="Build this stage again; may stand several times.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Accept this stage's artifact of older code; may stand several times."),
    ] = None,
    store: StoreFolder = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Run a recipe. A stage whose configuration, inputs and code are as before is taken from the store."""
    from flows.graph.prepare import prepare

    # All that can be known to fail does so here, before Prefect is imported.
    ready = prepare(recipe, set or [], until, only, refresh or [], keep or [], store, device)
    with prefect(ready):
        from flows.flow import flow_of

        refs = flow_of(ready)(**ready.parameters)
    if as_json:
        print_json(outcome(refs))


def update(
    recipe: RecipeName,
    set: Settings = None,
    store: StoreFolder = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Take in new, changed and removed files with the model and the settings of the recipe's newest run.

    Nothing is trained, and only the shards of passages that changed are encoded; `search` then answers from them.
    """
    from flows.cli.artifacts import opened
    from flows.graph.prepare import prepare
    from flows.runs.update import described, taken_in
    from flows.runs.update import update as settle

    begun = datetime.now(UTC)
    shelf = opened(store)
    resolved, settings, engine = settle(shelf, recipe, set or [])
    of = f"{engine.model} of the run of {engine.run.name} begun {engine.run.created[:19]}"
    terminal.print(f"model: {of} UTC", markup=False, highlight=False, soft_wrap=True)
    ready = prepare(resolved, settings, store=shelf.root, device=device)
    with prefect(ready):
        from flows.flow import flow_of

        refs = flow_of(ready)(**ready.parameters)
    done = taken_in(shelf, refs, begun)
    terminal.print(f"\n{described(done)}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print_json({**outcome(refs), "update": done})


def outcome(refs: "Mapping[str, Ref]") -> dict[str, Any]:
    """A run's artifacts, notices and results, to be printed as JSON."""
    from flows.graph.run_schema import read_metrics
    from pipeline.evaluate.short_tables import all_notes
    from pipeline.notices import read_notices

    artifacts = {
        node: {"digest": ref.digest, "path": str(ref.path), "metrics": ref.metrics} for node, ref in refs.items()
    }
    notices = {node: lines for node, ref in refs.items() if (lines := read_notices(ref.metrics))}
    results = read_metrics(refs)
    notes = all_notes(results) if results else []
    return {"artifacts": artifacts, "notices": notices, "notes": notes, "results": results}
