"""`cocondenser run` and `cocondenser update`: the flow, once all that can be known to fail has been looked at."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli.options import Device, Json, RecipeName, Settings, StoreFolder, Until, print_json, terminal
from flows.cli.prefect import prefect

if TYPE_CHECKING:
    from artifacts.records import Ref
    from flows.recipes.recipe import Recipe


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
    from flows.graph.selection import store_folder
    from flows.recipes.recipe import resolve

    settings = set or []
    refs = start(
        resolve(recipe, settings),
        settings,
        store_folder(store),
        called=recipe,
        until=until,
        only=only,
        refresh=refresh or [],
        keep=keep or [],
        device=device,
    )
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
    from flows.graph.update import described, taken_in
    from flows.graph.update import update as settle

    begun = datetime.now(UTC)
    shelf = opened(store)
    resolved, settings, engine = settle(shelf, recipe, set or [])
    of = f"{engine.model} of the run of {engine.run.name} begun {engine.run.created[:19]}"
    terminal.print(f"model: {of} UTC", markup=False, highlight=False, soft_wrap=True)
    refs = start(resolved, settings, shelf.root, called=recipe, device=device)
    done = taken_in(shelf, refs, begun)
    terminal.print(f"\n{described(done)}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print_json({**outcome(refs), "update": done})


def start(
    recipe: "Recipe",
    settings: list[str],
    root: Path,
    *,
    called: str,
    until: str | None = None,
    only: str | None = None,
    refresh: Sequence[str] = (),
    keep: Sequence[str] = (),
    device: Literal["auto", "cpu", "cuda"] | None = None,
) -> "dict[str, Ref]":
    """Runs the flow: {node: its artifact}. `called`: the recipe as the user named it."""
    from artifacts.store import Store
    from flows.dag import nodes
    from flows.graph import preflight
    from flows.graph.selection import names, select, upstream

    # All that can be known to fail does so here, before Prefect is imported.
    shelf, dag = Store(root), nodes(recipe)
    wanted = select(dag, until, only)
    names(dag, [*refresh, *keep])
    preflight.check(shelf, dag, wanted, preflight.with_device(recipe.machine, device), recipe.tracking)
    if only:
        upstream(shelf, dag, wanted, called)

    name = "" if recipe.title == recipe.name else f" ({recipe.name})"
    with prefect(recipe.title, name, root):
        from flows.flow import cocondenser

        # The settings once more, which changes nothing: the page and the run's record then name them.
        return cocondenser(recipe, settings, until, only, [*refresh], [*keep], str(root), device)


def outcome(refs: "Mapping[str, Ref]") -> dict[str, Any]:
    """A run's artifacts, notices and results, to be printed as JSON."""
    from flows.graph.summary import read_metrics
    from pipeline.evaluate.short_tables import all_notes
    from pipeline.notices import read_notices

    artifacts = {
        node: {"digest": ref.digest, "path": str(ref.path), "metrics": ref.metrics} for node, ref in refs.items()
    }
    notices = {node: lines for node, ref in refs.items() if (lines := read_notices(ref.metrics))}
    results = read_metrics(refs)
    notes = all_notes(results) if results else []
    return {"artifacts": artifacts, "notices": notices, "notes": notes, "results": results}
