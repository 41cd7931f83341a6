"""The command line. Everything heavy is imported inside the commands, so that --help is quick."""

import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.table import Table

from artifacts.errors import StoreError
from flows.cli_artifacts import artifacts_app
from flows.cli_fuse import fuse
from flows.cli_options import Json, RecipeName, Settings, StoreFolder, Until, out, print_json, terminal
from pipeline.errors import InputError

INTERRUPTED = 130
"""Exit code that typer makes of Ctrl-C."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="From a text collection and training questions to a strong dense retriever, as one cached Prefect flow.",
    epilog="Example: [bold]cocondenser run pydocs-small[/bold]",
)
app.add_typer(artifacts_app, name="artifacts")
app.command(epilog="Example: [bold]cocondenser fuse bm25.trec gar.trec --qrels qrels.dev.tsv --out both.trec[/bold]")(
    fuse
)


@app.command(epilog="Example: [bold]cocondenser run pydocs-small --set cocondenser.tokens=1e6 --until stage1[/bold]")
def run(
    recipe: RecipeName,
    set: Settings = None,
    until: Until = None,
    only: Annotated[
        str | None, typer.Option(metavar="STAGE", help="The one stage to run; what it reads must be in the store.")
    ] = None,
    refresh: Annotated[
        list[str] | None, typer.Option(metavar="STAGE", help="Build this stage anew; may stand several times.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Accept this stage's artifact of older code; may stand several times."),
    ] = None,
    store: StoreFolder = None,
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="The recipe's where not given.")] = None,
    as_json: Json = False,
) -> None:
    """Run a recipe. A stage whose configuration, inputs and code are as before is taken from the store."""
    from artifacts.store import Store
    from flows import preflight
    from flows.dag import nodes
    from flows.recipe import resolve
    from flows.selection import names, select, store_folder, upstream

    # All that can be known to fail does so here, before Prefect is imported.
    resolved = resolve(recipe, set or [])
    root = store_folder(store)
    shelf, dag = Store(root), nodes(resolved)
    wanted = select(dag, until, only)
    names(dag, [*(refresh or []), *(keep or [])])
    preflight.check(shelf, dag, wanted)
    if only:
        upstream(shelf, dag, wanted, recipe)

    from flows.server import reachable_server
    from tasks.terminal import TERMINAL

    TERMINAL.set(terminal)
    with ExitStack() as running:
        with terminal.status("Starting Prefect ..."):
            address, own = running.enter_context(reachable_server())
            from flows.flow import cocondenser
        where = f"{'its own page' if own else 'the page'} {address.removesuffix('/api')}"
        called = "" if resolved.title == resolved.name else f" ({resolved.name})"
        terminal.print(f"[bold]{resolved.title}[/]{called}, store {root}, {where}", highlight=False, soft_wrap=True)
        try:
            # The settings once more, which changes nothing: the page and the run's record then name them.
            refs = cocondenser(resolved, set or [], until, only, refresh or [], keep or [], str(root), device)
        except RuntimeError as error:  # a child process that failed: its last words
            fail(str(error), 1)
    if as_json:
        from flows.results import read_metrics

        artifacts = {
            node: {"digest": ref.digest, "path": str(ref.path), "metrics": ref.metrics} for node, ref in refs.items()
        }
        print_json({"artifacts": artifacts, "results": read_metrics(refs)})


@app.command(epilog="Example: [bold]cocondenser plan pydocs-small --set stage2.epochs=4[/bold]")
def plan(
    recipe: RecipeName,
    set: Settings = None,
    until: Until = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Show what a run would do, and why, with a guess of time and disk from what was built before."""
    from artifacts.store import Store
    from flows.dag import nodes
    from flows.plan import plan as make_plan
    from flows.recipe import resolve
    from flows.selection import select, store_folder
    from tasks.terminal import duration, size

    shelf = Store(store_folder(store))
    resolved = resolve(recipe, set or [])
    steps = make_plan(shelf, select(nodes(resolved), until, None), resolved.name)
    if as_json:
        print_json([{**asdict(step), "ref": step.ref.digest if step.ref else None} for step in steps])
        return
    table = Table("stage", "", "why", box=None, pad_edge=False)
    table.add_column("time", justify="right")
    table.add_column("disk", justify="right")
    looks = {"reuse": "[cyan]reuse[/]", "build": "[green]build[/]", "unknown": "[yellow]?[/]"}
    for step in steps:
        why = "\n".join(step.why[:6]) + (f"\nand {len(step.why) - 6} more" if len(step.why) > 6 else "")
        seconds = "?" if step.seconds is None else duration(step.seconds)
        disk = "?" if step.bytes is None else size(step.bytes)
        guess = ("", "") if step.action == "reuse" else (seconds, disk)
        table.add_row(step.node, looks[step.action], why, *guess)
    out.print(table)
    todo = [step for step in steps if step.action != "reuse"]
    took, filled = sum(step.seconds or 0 for step in todo), sum(step.bytes or 0 for step in todo)
    unknown = sum(step.seconds is None for step in todo)
    total = f", at most about {duration(took)} and {size(filled)}" if len(todo) > unknown else ""
    beside = (
        f" (and what {unknown} stages take that this recipe never built in this store)" if unknown and total else ""
    )
    none = " No guess of time and disk: this recipe never built them in this store." if todo and not total else ""
    out.print(f"\n{len(steps) - len(todo)} of {len(steps)} stages are reused{total}{beside}.{none}", highlight=False)


@app.command(epilog='Example: [bold]cocondenser search "How do I merge two sorted lists into one?"[/bold]')
def search(
    question: Annotated[str, typer.Argument(help="A question, in quotes.")],
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Documents shown.")] = 5,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Of this recipe; else of the newest run.")
    ] = None,
    by: Annotated[
        Literal["dense", "fusion", "bm25"] | None, typer.Option(help="Ask this; else what was best on dev questions.")
    ] = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Answer a question from the newest run, by what was best on its dev questions: dense, or dense and BM25."""
    from artifacts.store import Store
    from flows.search import excerpt, newest_engine, pattern, words_of
    from flows.search import search as find
    from flows.selection import store_folder

    engine = newest_engine(Store(store_folder(store)), recipe, by)
    if engine.instead:
        terminal.print("by dense: a fusion was best on dev, but its first stage is a run file", style="dim")
    with terminal.status("Loading ..."):
        answers = find(engine, question, k)
    if as_json:
        print_json({"recipe": engine.run.name, "by": engine.how, "answers": [asdict(answer) for answer in answers]})
        return
    from rich.padding import Padding
    from rich.text import Text

    words = words_of(question)
    first = engine.metrics["labels"]["bm25"]
    asked = {"fusion": f"dense + {first}", "bm25": first}.get(engine.how, engine.how)
    out.print(f"[dim]{engine.run.name}, {asked}[/]\n", highlight=False)
    for answer in answers:
        out.print(
            Text.assemble(
                (f"{answer.rank:>2}  ", "dim"),
                (answer.title or answer.doc_id, "bold"),
                (f"  {answer.score:#.4g}", "dim"),
            )
        )
        if answer.question:
            out.print(Padding(Text(answer.question, "italic"), (0, 0, 0, 4)))
        text = Text(excerpt(answer.text, words))
        if words:
            text.highlight_regex(pattern(words), "bold yellow")
        out.print(Padding(text, (0, 0, 1, 4)))


@app.command(epilog="Example: [bold]cocondenser recipes --json[/bold]")
def recipes(as_json: Json = False) -> None:
    """List the recipes."""
    from flows.layers import named
    from flows.recipe import resolve

    found = [recipe for recipe in map(resolve, named()) if not recipe.hidden]
    if as_json:
        print_json([{"name": r.name, "title": r.title, "description": r.description} for r in found])
        return
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 1, 0))
    for r in found:
        table.add_row(f"[bold]{r.name}[/]", f"{r.title}\n[dim]{r.description}[/]")
    out.print(table)


@app.command(epilog="Example: [bold]cocondenser up --port 4200[/bold]")
def up(port: Annotated[int, typer.Option(min=1, max=65535, help="Of the page and the API.")] = 4200) -> None:
    """Start Prefect's server, the deployments and one worker; Ctrl-C ends all."""
    from flows.up import up as start

    start(port)


@app.command(epilog="Example: [bold]cocondenser join --store /shared/store[/bold]")
def join(store: StoreFolder = None) -> None:
    """Take part in trainings that are started on another machine with `machine.torchrun`, from a shared store."""
    from flows.selection import store_folder
    from pipeline.join import join as take_part

    folder = store_folder(store)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such store; it must be the one of the machine that runs the recipe")
    terminal.print(f"waiting for trainings in {folder / 'work'}; Ctrl-C ends", highlight=False, soft_wrap=True)
    with suppress(KeyboardInterrupt):
        take_part(folder / "work", lambda text: terminal.print(text, highlight=False))


@app.command(epilog="Example: [bold]cocondenser deployments --write[/bold]")
def deployments(
    write: Annotated[bool, typer.Option("--write", help="Write prefect.yaml anew.")] = False,
) -> None:
    """Print prefect.yaml as the recipes make it: a deployment each, with the complete recipe inside."""
    from flows.deployments import PREFECT_YAML, render

    if write:
        PREFECT_YAML.write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())


def main() -> None:
    """What the user can mend is one line and exit code 2; a stage that failed is its last words and exit code 1."""
    try:
        app()
    except (InputError, StoreError) as error:
        fail(str(error), 2)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            fail("interrupted; the same command goes on from the last checkpoint", INTERRUPTED)
        raise


def fail(text: str, code: int) -> None:
    terminal.print("[red]error:[/] ", end="")
    terminal.print(text, markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
