"""`cocondenser run` and `cocondenser update`: early checks, then the flow."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import (
    Device,
    Json,
    RecipeName,
    Settings,
    StoreFolder,
    Until,
    existing_store,
    print_json,
    terminal,
    warn,
)
from flows.cli.running.model_options import Adapted, FromModel, OnCollection, recipe_settings
from flows.cli.running.prefect import prefect_for

if TYPE_CHECKING:
    from artifacts.records import Ref
    from flows.graph.prepare import Run
    from flows.recipes.recipe import Recipe


def run(
    recipe: RecipeName,
    model: FromModel = None,
    adapt: Adapted = False,
    collection: OnCollection = None,
    set: Settings = None,
    until: Until = None,
    only: Annotated[
        str | None, typer.Option(metavar="STAGE", help="Run only this stage. Its inputs must be in the store.")
    ] = None,
    refresh: Annotated[
        list[str] | None, typer.Option(metavar="STAGE", help="Build this stage again. Repeatable.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Reuse this stage's artifact of older code. Repeatable."),
    ] = None,
    store: StoreFolder = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Run a recipe. A stage is reused from the store if its configuration, inputs and code have not changed."""
    from flows.graph.ineffective_settings import ineffective_settings
    from flows.graph.prepare import prepare
    from flows.recipes.recipe import resolve

    # Everything that can fail early fails here, before the slow import of Prefect.
    settings = recipe_settings(store, recipe, set, model, collection, adapt, device)
    prepared = prepare(recipe, settings, until, only, refresh or [], keep or [], store, device)
    for line in ineffective_settings(partial(resolve, recipe), settings, set or []):
        warn(line)
    refs = run_flow(prepared)
    if as_json:
        print_json(run_outcome(refs))


def update(
    recipe: RecipeName,
    set: Settings = None,
    judged: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Compare on your own test questions: queries.jsonl and qrels/test.tsv, such as the folder of `judge`.",
        ),
    ] = None,
    measure: Annotated[
        str, typer.Option(metavar="MEASURE", help="Measure to compare: RR@10, nDCG@10, R@100, AP, ...")
    ] = "RR@10",
    store: StoreFolder = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Update a collection with new, changed and deleted files, without training.

    The update uses the model and the settings of the recipe's newest run.
    Only shards with changed passages are encoded. `cocondenser search` then uses the new collection.
    At the end, figures on test questions are compared with those of the run that trained the model.
    """
    from flows.updates.prepare import prepare_update

    prepared = prepare_update(recipe, set or [], judged, measure, existing_store(store).root, device)
    engine = prepared.engine
    source = f"{engine.model} of the run of {engine.run.name} started {engine.run.created[:19]} UTC"
    terminal.print(f"model: {source}", markup=False, highlight=False, soft_wrap=True)
    with prefect_for(prepared.run):
        from flows.updates.flow import flow_of

        updated = flow_of(prepared)(**prepared.run.parameters)
    if as_json:
        figures = None if updated.figures is None else updated.figures.as_json()
        print_json({**run_outcome(updated.refs), "update": {**updated.counts, "figures": figures}})


def run_flow(prepared: "Run[Recipe]") -> "Mapping[str, Ref]":
    """Runs the flow of a prepared run. Returns the artifact of each node."""
    with prefect_for(prepared):
        from flows.flow import flow_of

        done: Mapping[str, Ref] = flow_of(prepared)(**prepared.parameters)
        return done


def run_outcome(refs: "Mapping[str, Ref]") -> dict[str, Any]:
    """A run's artifacts, notices and results, for JSON."""
    from flows.graph.run_schema import read_dimensions, read_metrics, read_others
    from pipeline.evaluate.tables.others_table import worse_sentences
    from pipeline.evaluate.tables.short_tables import all_notes
    from pipeline.notices import read_notices

    notices = {node: lines for node, ref in refs.items() if (lines := read_notices(ref.metrics))}
    results, others = read_metrics(refs), read_others(refs)
    return {
        "artifacts": artifacts_as_json(refs),
        "notices": notices,
        "notes": all_notes(results) if results else [],
        "results": results,
        "others": {**others, "worse": worse_sentences(others)} if others else None,
        "dimensions": read_dimensions(refs),
    }


def artifacts_as_json(refs: "Mapping[str, Ref]") -> dict[str, dict[str, Any]]:
    """{node: its artifact's digest, path and metrics}."""
    return {node: {"digest": ref.digest, "path": str(ref.path), "metrics": ref.metrics} for node, ref in refs.items()}
