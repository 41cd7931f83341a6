"""`cocondenser artifacts ...`: a look into the store."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Json, StoreFolder, columns, out, print_json, print_path, print_table

if TYPE_CHECKING:
    from artifacts.store import Store

artifacts_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look into the store of artifacts.",
    epilog="Example: [bold]cocondenser artifacts ls[/bold]",
)

Which = Annotated[str, typer.Argument(metavar="WHICH", help="A stage's name (its newest), or the start of a digest.")]


def opened(given: Path | None) -> "Store":
    """The store, which must be there: a folder misspelt is no store without artifacts, and nothing for `gc`.

    An empty folder is one to be.
    """
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from pipeline.errors import InputError

    root = store_folder(given)
    if not root.exists():
        raise InputError(f"{root}: no such store")
    shelf = Store(root)
    if not shelf.format.exists() and any(root.iterdir()):
        raise InputError(f"{root}: no store: it has no {shelf.format.name}")
    return shelf


@artifacts_app.command("ls", epilog="Example: [bold]cocondenser artifacts ls --stage finetune[/bold]")
def list_artifacts(
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help="Of this stage or node only.")] = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """List the artifacts, newest first."""
    from flows.recipes.yaml_layers import hint
    from pipeline.errors import InputError
    from pipeline.formatting import counted
    from tasks.terminal import duration, size

    shelf = opened(store)
    records = list(shelf.records())
    found = [r for r in records if stage in (None, r.stage, r.node)]
    if stage is not None and not found:
        names = sorted({name for r in records for name in (r.stage, r.node)})
        raise InputError(f"{shelf.root}: no artifact of {stage}{hint(stage, names)}")
    if as_json:
        print_json([asdict(record) for record in found])
        return
    table = columns()
    for heading in ("node", "digest"):
        table.add_column(heading)
    table.add_column("recipe", min_width=10)
    table.add_column("created")
    table.add_column("took", justify="right")
    table.add_column("size", justify="right")
    for r in found:
        when = r.created[:16].replace("T", " ")
        table.add_row(escape(r.node), r.digest[:12], escape(r.recipe or ""), when, duration(r.seconds), size(r.bytes))
    print_table(table)
    objects = {record.digest: record.bytes for record in found}
    out.print(
        f"\n{counted(len(found), 'artifacts')}, {size(sum(objects.values()))} in {shelf.root}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@artifacts_app.command(epilog="Example: [bold]cocondenser artifacts show stage2[/bold]")
def show(which: Which, store: StoreFolder = None, as_json: Json = False) -> None:
    """Show an artifact's lineage: configuration, inputs, code, versions, metrics."""
    shelf = opened(store)
    record = shelf.show(which)
    fields = {"path": str(shelf.ref(record).path), **asdict(record)}
    if as_json:
        print_json(fields)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value in ({}, "", None):
            continue
        short = 12 if name in ("code", "sources", "inputs", "input_keys") else None  # enough to tell two hashes apart
        lines = [f"{k} = {str(x)[:short]}" for k, x in flat(value)] if isinstance(value, dict) else [str(value)]
        table.add_row(f"[bold]{name}[/]", escape("\n".join(lines)))
    out.print(table)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of nested values."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@artifacts_app.command(epilog='Example: [bold]ls "$(cocondenser artifacts path stage2)"[/bold]')
def path(which: Which, store: StoreFolder = None) -> None:
    """Print an artifact's folder."""
    shelf = opened(store)
    print_path(shelf.ref(shelf.show(which)).path)


@artifacts_app.command(epilog="Example: [bold]cocondenser artifacts verify[/bold]")
def verify(
    which: Annotated[str | None, typer.Argument(metavar="[WHICH]", help="One artifact; all where not given.")] = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Hash every file again. What is broken is set aside, and built again when it is next needed; exit code 1."""
    from artifacts.verify import verify as check

    problems = check(opened(store), which)
    if as_json:
        print_json(problems)
    else:
        said = "\n".join(problems) or "All files are as they were written."
        out.print(said, markup=False, highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


@artifacts_app.command(epilog="Example: [bold]cocondenser artifacts gc --runs 3 --days 14 --dry-run[/bold]")
def gc(
    runs: Annotated[int, typer.Option(min=0, help="Keep what the newest so many runs name.")] = 10,
    days: Annotated[float, typer.Option(min=0, help="Keep what was built or used in the last so many days.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing.")] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Free disk space: artifacts that no recent run names, checkpoints of abandoned builds, broken files."""
    from artifacts.gc import gc as collect
    from tasks.terminal import size

    removed = collect(opened(store), runs, days, dry_run)
    if as_json:
        print_json([asdict(item) for item in removed])
        return
    for item in removed:
        out.print(f"{size(item.bytes):>8}  {item.path}  {item.why}", markup=False, highlight=False, soft_wrap=True)
    freed = size(sum(item.bytes for item in removed))
    out.print(f"{freed} {'would be' if dry_run else 'were'} freed.", highlight=False)
