"""The command line. Everything heavy is imported inside the commands, so that --help is quick."""

import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from artifacts.errors import StoreError
from flows.cli.ablation import ablation_app
from flows.cli.artifacts import artifacts_app
from flows.cli.compare import compare
from flows.cli.evaluate import evaluate
from flows.cli.export import export
from flows.cli.fuse import fuse
from flows.cli.listing import print_recipes
from flows.cli.options import Json, StoreFolder, fail, terminal
from flows.cli.pack import export_run, import_run
from flows.cli.plan import plan
from flows.cli.run import run, update
from flows.cli.runs import runs
from flows.cli.search import search
from flows.cli.sentences import sentences_app
from flows.cli.serve import serve_search
from pipeline.errors import InputError
from pipeline.notices import escaped
from tasks.printable import guard_streams

EXPECTED_ERRNOS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE),
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
)
"""What the system refuses and the user can fix, whatever option or field it came by."""
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
EXAMPLES: dict[Callable[..., None], str] = {
    run: "run pydocs-small --set cocondenser.budget='1 tokens'e6 --until stage1",
    update: "update text",
    runs: "runs --recipe pydocs-small",
    compare: "compare pydocs-small text --measure nDCG@10",
    plan: "plan pydocs-small --set stage2.epochs=4",
    search: 'search "How do I merge two sorted lists into one?"',
    serve_search: "serve-search --port 8080",
    export: "export my-model",
    evaluate: "evaluate --model models/all-MiniLM-L6-v2 --collection data/scifact",
    fuse: "fuse bm25.trec gar.trec --qrels qrels.dev.tsv --out both.trec",
}
for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: [bold]cocondenser {example}[/bold]")(command)
for name, pack_command, example in (
    ("export", export_run, "export pydocs-small run.tar.zst"),
    ("import", import_run, "import run.tar.zst --store other"),
):
    epilog = f"Example: [bold]cocondenser artifacts {example}[/bold]"
    artifacts_app.command(name, epilog=epilog)(pack_command)
app.add_typer(artifacts_app, name="artifacts")
app.add_typer(ablation_app, name="ablation")
app.add_typer(sentences_app, name="sentences")


@app.command(epilog="Example: [bold]cocondenser recipes --json[/bold]")
def recipes(as_json: Json = False) -> None:
    """List the recipes."""
    from flows.recipes.recipe import resolve
    from flows.recipes.yaml_layers import named

    print_recipes(map(resolve, named()), as_json)


@app.command(epilog="Example: [bold]cocondenser up --port 4200[/bold]")
def up(port: Annotated[int, typer.Option(min=1, max=65535, help="Of the page and the API.")] = 4200) -> None:
    """Start Prefect's server, the deployments and one worker; Ctrl-C ends all."""
    from flows.cli.up import up as start

    start(port)


@app.command(epilog="Example: [bold]cocondenser join --store /shared/store[/bold]")
def join(store: StoreFolder = None) -> None:
    """Take part in trainings that are started on another machine with `machine.torchrun`, from a shared store."""
    from flows.graph.selection import store_folder
    from pipeline.runtime.multi_node import join as take_part

    folder = store_folder(store)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such store; it must be the one of the machine that runs the recipe")
    waiting = f"waiting for trainings in {folder / 'work'}; Ctrl-C ends"
    terminal.print(waiting, markup=False, highlight=False, soft_wrap=True)
    with suppress(KeyboardInterrupt):
        take_part(folder / "work", lambda text: terminal.print(text, markup=False, highlight=False))


@app.command(epilog="Example: [bold]cocondenser deployments --write[/bold]")
def deployments(
    write: Annotated[bool, typer.Option("--write", help="Write prefect.yaml.")] = False,
) -> None:
    """Print prefect.yaml as the recipes give it: a deployment each, which names its recipe."""
    from flows.deploy.deployments import PREFECT_YAML, render

    if write:
        PREFECT_YAML.write_text(render(), encoding="utf-8")
    else:
        print(render(), end="", flush=True)


def main(command: Callable[[], object] = app) -> None:
    """What the user can fix is one line and exit code 2; a stage that failed is its last words and exit code 1."""
    guard_streams()
    try:
        command()
    except (InputError, StoreError) as error:
        fail(str(error), 2)
    except OSError as error:
        if error.errno not in EXPECTED_ERRNOS:
            raise
        where = "" if error.filename is None else f"{escaped(str(error.filename))}: "  # standard output has no name
        fail(f"{where}{str(error.strerror).lower()}", 2)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            resumes = sys.argv[1:2] in (["run"], ["update"]) or sys.argv[2:3] == ["run"]
            how = "; the same command goes on from the last checkpoint" if resumes else ""
            fail(f"interrupted{how}", INTERRUPTED)
        raise
