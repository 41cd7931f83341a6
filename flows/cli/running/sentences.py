"""`cocondenser sentences ...`: sentence similarity."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.listing import print_recipes
from flows.cli.options import Device, Json, Settings, StoreFolder, out, print_json
from flows.cli.running.plan import ACTION_LABELS, REASONS
from flows.cli.running.prefect import prefect_for

sentences_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Measure models on sentence similarity (STS-b), by number of training rows.",
    epilog="Example: [bold]cocondenser sentences run stsb --set models.mine=path/to/model[/bold]",
)
Name = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="Name of a sentence recipe (see `cocondenser sentences recipes`), or a YAML file."
    ),
]


@sentences_app.command(epilog="Example: [bold]cocondenser sentences recipes --json[/bold]")
def recipes(as_json: Json = False) -> None:
    """List the recipes of sentence tasks."""
    from flows.recipes.yaml_layers import SENTENCES, summaries

    print_recipes(summaries(SENTENCES), as_json)


@sentences_app.command(epilog="Example: [bold]cocondenser sentences plan stsb --set repeats=5[/bold]")
def plan(recipe: Name, set: Settings = None, store: StoreFolder = None, as_json: Json = False) -> None:
    """Show what a run would do and why.

    The command reads the tables that the store does not have, to find errors in them.
    """
    from rich.markup import escape
    from rich.table import Table

    from flows.graph.plan import plan as make_plan
    from flows.graph.preflight import missing
    from flows.graph.selection import store_to_fill
    from flows.sentences.checks import check_tables
    from flows.sentences.dag import sentence_nodes
    from flows.sentences.recipe import resolve_sentences

    resolved, artifact_store = resolve_sentences(recipe, set or []), store_to_fill(store)
    dag = sentence_nodes(resolved, artifact_store)
    steps = make_plan(artifact_store, dag, resolved.name)
    check_tables(resolved, steps)
    reasons = [
        missing(node) or step.why if step.action != "reuse" else [] for node, step in zip(dag, steps, strict=True)
    ]
    if as_json:
        refs = [{"ref": step.ref.digest if step.ref else None} for step in steps]
        print_json([{**asdict(step), **ref, "why": why} for step, ref, why in zip(steps, refs, reasons, strict=True)])
        return
    table = Table("stage", "", "why", box=None, pad_edge=False)
    for step, why in zip(steps, reasons, strict=True):
        table.add_row(escape(step.node), ACTION_LABELS[step.action], escape("\n".join(why[:REASONS])))
    out.print(table)
    reused = sum(step.action == "reuse" for step in steps)
    out.print(f"\n{reused} of {len(steps)} stages are reused.", highlight=False)


@sentences_app.command(epilog="Example: [bold]cocondenser sentences run stsb --set models.mine=path/to/model[/bold]")
def run(
    recipe: Name, set: Settings = None, store: StoreFolder = None, device: Device = None, as_json: Json = False
) -> None:
    """Run a recipe and print its table. Trainings in the store are reused."""
    from flows.sentences.dag import SUMMARY
    from flows.sentences.prepare import prepare_sentences
    from flows.sentences.results import read_summary, results_table

    # Everything that can fail early fails here, before the slow import of Prefect.
    prepared = prepare_sentences(recipe, set or [], store, device)
    with prefect_for(prepared, ""):
        from flows.sentences.flow import flow_of

        refs = flow_of(prepared)(**prepared.parameters)
    published = prepared.recipe.published
    summary = read_summary(refs[SUMMARY].path)
    if as_json:
        artifacts = {node: {"digest": ref.digest, "path": str(ref.path)} for node, ref in refs.items()}
        figures = published.model_dump() if published else None
        print_json({"artifacts": artifacts, "results": summary, "published": figures})
        return
    out.print(results_table(summary, published))
