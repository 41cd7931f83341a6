"""`cocondenser artifacts ...`: lists, checks and removes artifacts of the store."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Json, StoreFolder, columns, existing_store, out, print_json, print_path, print_table

artifacts_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="List, check, pack, send and remove the artifacts in the store.",
    epilog="Example: [bold]cocondenser artifacts ls[/bold]",
)

Which = Annotated[
    str, typer.Argument(metavar="ARTIFACT", help="Name of a stage (its newest artifact), or the start of a digest.")
]


@artifacts_app.command("ls", epilog="Example: [bold]cocondenser artifacts ls --stage finetune[/bold]")
def list_artifacts(
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help="List only this stage or node.")] = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """List the artifacts, newest first."""
    from flows.recipes.yaml_layers import hint
    from pipeline.errors import InputError
    from pipeline.formatting import counted
    from tasks.terminal import duration, size

    artifact_store = existing_store(store)
    records = list(artifact_store.records())
    selected = [record for record in records if stage in (None, record.stage, record.node)]
    if stage is not None and not selected:
        names = sorted({name for record in records for name in (record.stage, record.node)})
        raise InputError(f"{artifact_store.root}: no artifact of {stage}{hint(stage, names)}")
    if as_json:
        print_json([asdict(record) for record in selected])
        return
    table = columns()
    for heading in ("node", "digest"):
        table.add_column(heading)
    table.add_column("recipe", min_width=10)
    table.add_column("created")
    table.add_column("took", justify="right")
    table.add_column("size", justify="right")
    for record in selected:
        created, took = record.created[:16].replace("T", " "), duration(record.seconds)
        recipe = escape(record.recipe or "")
        table.add_row(escape(record.node), record.digest[:12], recipe, created, took, size(record.bytes))
    print_table(table)
    objects = {record.digest: record.bytes for record in selected}
    out.print(
        f"\n{counted(len(selected), 'artifacts')}, {size(sum(objects.values()))} in {artifact_store.root}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@artifacts_app.command(epilog="Example: [bold]cocondenser artifacts show stage2[/bold]")
def show(which: Which, store: StoreFolder = None, as_json: Json = False) -> None:
    """Show an artifact's lineage: configuration, inputs, code, versions, metrics."""
    artifact_store = existing_store(store)
    record = artifact_store.show(which)
    fields = {"path": str(artifact_store.ref(record).path), **asdict(record)}
    if as_json:
        print_json(fields)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value in ({}, "", None):
            continue
        short = 12 if name in ("code", "sources", "inputs", "input_keys") else None  # enough to distinguish two hashes
        lines = [f"{k} = {str(x)[:short]}" for k, x in dotted_items(value)] if isinstance(value, dict) else [str(value)]
        table.add_row(f"[bold]{name}[/]", escape("\n".join(lines)))
    out.print(table)


def dotted_items(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of nested values."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from dotted_items(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@artifacts_app.command(epilog='Example: [bold]ls "$(cocondenser artifacts path stage2)"[/bold]')
def path(which: Which, store: StoreFolder = None) -> None:
    """Print an artifact's folder."""
    artifact_store = existing_store(store)
    print_path(artifact_store.ref(artifact_store.show(which)).path)


@artifacts_app.command(epilog="Example: [bold]cocondenser artifacts verify[/bold]")
def verify(
    which: Annotated[
        str | None, typer.Argument(metavar="ARTIFACT", help="Check only this artifact (default: all).")
    ] = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Check the hash of every file.

    The store sets damaged artifacts aside, and a later run builds them again.
    The exit code is then 1.
    """
    from artifacts.verify import verify as verify_store

    problems = verify_store(existing_store(store), which)
    if as_json:
        print_json(problems)
    else:
        text = "\n".join(problems) or "No file has changed since it was written."
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


@artifacts_app.command(epilog="Example: [bold]cocondenser artifacts gc --runs 3 --days 14 --dry-run[/bold]")
def gc(
    runs: Annotated[int, typer.Option(min=0, metavar="N", help="Keep the artifacts of the N newest runs.")] = 10,
    days: Annotated[
        float, typer.Option(min=0, metavar="N", help="Keep the artifacts built or used in the last N days.")
    ] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Free disk space.

    Removes artifacts that no recent run uses, checkpoints of unfinished builds, and damaged files.
    """
    from artifacts.gc import gc as collect
    from tasks.terminal import size

    removed = collect(existing_store(store), runs, days, dry_run)
    if as_json:
        print_json([asdict(item) for item in removed])
        return
    for item in removed:
        out.print(f"{size(item.bytes):>8}  {item.path}  {item.why}", markup=False, highlight=False, soft_wrap=True)
    freed = size(sum(item.bytes for item in removed))
    out.print(f"{freed} {'would be' if dry_run else 'were'} freed.", highlight=False)
