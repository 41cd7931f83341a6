"""`cocondenser sentences ...`: sentence similarity."""

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.listing import print_recipes
from flows.cli.options import Device, Json, Settings, StoreFolder, out, print_json
from flows.cli.prefect import prefect

sentences_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Measure models on sentence similarity (STS-b), by training size.",
    epilog="Example: [bold]cocondenser sentences run stsb --set models.mine=path/to/model[/bold]",
)
Name = Annotated[str, typer.Argument(metavar="RECIPE", help="One of `cocondenser sentences recipes`, or a YAML file.")]


@sentences_app.command(epilog="Example: [bold]cocondenser sentences recipes --json[/bold]")
def recipes(as_json: Json = False) -> None:
    """List the recipes of sentence tasks."""
    from flows.recipes.yaml_layers import named
    from flows.sentences.recipe import SENTENCES, resolve

    print_recipes(map(resolve, named(SENTENCES)), as_json)


@sentences_app.command(epilog="Example: [bold]cocondenser sentences plan stsb --set repeats=5[/bold]")
def plan(recipe: Name, set: Settings = None, store: StoreFolder = None, as_json: Json = False) -> None:
    """Show what a run would do, and why. Tables that the store does not hold are read, to tell what is wrong."""
    from dataclasses import asdict

    from artifacts.store import Store
    from flows.graph.plan import plan as make_plan
    from flows.graph.preflight import missing
    from flows.graph.selection import store_folder
    from flows.sentences.checks import check_tables
    from flows.sentences.dag import nodes
    from flows.sentences.recipe import resolve

    resolved, shelf = resolve(recipe, set or []), Store(store_folder(store))
    dag = nodes(resolved, shelf)
    steps = make_plan(shelf, dag, resolved.name)
    check_tables(resolved, steps)
    why = [missing(node) or step.why if step.action != "reuse" else [] for node, step in zip(dag, steps, strict=True)]
    if as_json:
        refs = [{"ref": step.ref.digest if step.ref else None} for step in steps]
        print_json([{**asdict(step), **ref, "why": said} for step, ref, said in zip(steps, refs, why, strict=True)])
        return
    table = Table("stage", "", "why", box=None, pad_edge=False)
    looks = {"reuse": "[cyan]reuse[/]", "build": "[green]build[/]", "unknown": "[yellow]?[/]"}
    for step, said in zip(steps, why, strict=True):
        table.add_row(escape(step.node), looks[step.action], escape("\n".join(said[:6])))
    out.print(table)
    reused = sum(step.action == "reuse" for step in steps)
    out.print(f"\n{reused} of {len(steps)} stages are reused.", highlight=False)


@sentences_app.command(epilog="Example: [bold]cocondenser sentences run stsb --set models.mine=path/to/model[/bold]")
def run(
    recipe: Name, set: Settings = None, store: StoreFolder = None, device: Device = None, as_json: Json = False
) -> None:
    """Run a recipe and print its table. What was trained before is taken from the store."""
    from flows.sentences import results
    from flows.sentences.dag import SUMMARY
    from flows.sentences.prepare import prepare_sentences

    # All that can be known to fail does so here, before Prefect is imported.
    ready = prepare_sentences(recipe, set or [], store, device)
    with prefect(ready, ""):
        from flows.sentences.flow import flow_of

        refs = flow_of(ready)(**ready.parameters)
    published = ready.recipe.published
    found: dict[str, Any] = results.read(refs[SUMMARY].path)
    if as_json:
        artifacts = {node: {"digest": ref.digest, "path": str(ref.path)} for node, ref in refs.items()}
        said = published.model_dump() if published else None
        print_json({"artifacts": artifacts, "results": found, "published": said})
        return
    out.print(results.table(found, published))
