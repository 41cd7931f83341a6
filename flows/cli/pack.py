"""`cocondenser artifacts export` and `import`: a run as one file, for another store."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.artifacts import opened
from flows.cli.options import Json, StoreFolder, out, print_json, terminal, warn
from pipeline.paths import given

if TYPE_CHECKING:
    from artifacts.locks import Holder
    from artifacts.packs.pack import Report

MEGABYTE = 1_000_000


def export_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A recipe (its newest), an id of `runs`, a report.html.")],
    file: Annotated[Path, typer.Argument(parser=given, metavar="FILE.tar.zst", help="The pack to write.")],
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Leave out this stage's files, such as encode or index; several times."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE where it exists.")] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Write a run with its lineage, configuration, metrics and artifacts into one file, for `artifacts import`."""
    from artifacts.packs.pack import pack
    from flows.runs.evaluated import found_run
    from pipeline.formatting import counted
    from tasks.terminal import size

    shelf = opened(store)
    chosen = found_run(shelf, run)
    with shown("export") as report:
        done = pack(shelf, chosen, file, without or [], overwrite, report)
    if as_json:
        print_json(asdict(done))
        return
    left_out = f", without {', '.join(done.left_out)}" if done.left_out else ""
    begun = f"the run of {done.recipe} begun {done.created[:19]} UTC"
    text = f"{done.path}: {begun}, {counted(done.artifacts, 'artifacts')}{left_out}"
    out.print(f"{text}; {size(done.bytes)} in {size(done.packed)}", markup=False, highlight=False, soft_wrap=True)


def import_run(
    file: Annotated[
        Path, typer.Argument(parser=given, metavar="FILE.tar.zst", help="A pack that `artifacts export` wrote.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the pack's artifact where the store has another for the same key.")
    ] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Bring a run from a pack into the store, once every byte of it was checked. Import only what you trust."""
    from artifacts.packs.unpack import unpack
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from pipeline.formatting import counted
    from tasks.terminal import size

    shelf = Store(store_folder(store))
    with shown("import") as report:
        done = unpack(shelf, file, replace, report, waiting)
    if as_json:
        print_json(asdict(done))
        return
    begun = f"the run of {done.recipe} begun {done.created[:19]} UTC"
    text = f"{shelf.root}: {begun}, {counted(done.artifacts, 'artifacts')}"
    out.print(f"{text}, {done.new} of them new; {size(done.bytes)}", markup=False, highlight=False, soft_wrap=True)
    for what, nodes in (("the store's own stands for", done.kept), ("not in the pack:", done.left_out)):
        if nodes:
            out.print(f"{what} {', '.join(nodes)}", markup=False, highlight=False, soft_wrap=True)
    for line in done.damaged:
        warn(line)


@contextmanager
def shown(what: str) -> "Iterator[Report]":
    from tasks.terminal import bar, shown_in

    with shown_in(terminal), bar(what) as progress:
        yield lambda done, total: progress(done // MEGABYTE, max(total // MEGABYTE, 1), "MB")


def waiting(holder: "Holder") -> None:
    doing = f"building {holder.node}" if holder.stage != "import" else "importing the same"
    terminal.print(f"waiting for {holder}, which is {doing}", markup=False, highlight=False, soft_wrap=True)
