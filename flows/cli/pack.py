"""`cocondenser artifacts pack`, `unpack`, `push` and `pull`: a run for another store, as one file or at an address."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Json, StoreFolder, existing_store, out, print_json, terminal, warn
from pipeline.paths import expand_home

if TYPE_CHECKING:
    from artifacts.locks import Holder
    from artifacts.packs.pack import Report
    from artifacts.packs.unpack import Unpacked
    from artifacts.store import Store

MEGABYTE = 1_000_000
RUN = "A recipe (its newest run), an id that `cocondenser runs` shows, or a report.html."
Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="Address for fsspec, such as s3://bucket/folder (needs the package s3fs), or a folder.",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Leave out the files of this stage, such as encode or index. Repeatable."),
]


def pack_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    file: Annotated[Path, typer.Argument(parser=expand_home, metavar="FILE.tar.zst", help="File to write.")],
    without: Without = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Write a run into one file, with its lineage, configuration, metrics and artifacts.

    `cocondenser artifacts unpack` reads the file.
    """
    from artifacts.packs.pack import pack
    from flows.runs.evaluated import find_run
    from pipeline.formatting import counted
    from tasks.terminal import size

    source = existing_store(store)
    chosen = find_run(source, run)
    with progress_bar("pack") as report:
        done = pack(source, chosen, file, without or [], overwrite, report)
    if as_json:
        print_json(asdict(done))
        return
    left_out = f", without {', '.join(done.left_out)}" if done.left_out else ""
    started = f"the run of {done.recipe} started {done.created[:19]} UTC"
    text = f"{done.path}: {started}, {counted(done.artifacts, 'artifacts')}{left_out}"
    out.print(f"{text}; {size(done.bytes)} in {size(done.packed)}", markup=False, highlight=False, soft_wrap=True)


def unpack_run(
    file: Annotated[
        Path,
        typer.Argument(
            parser=expand_home, metavar="FILE.tar.zst", help="File that `cocondenser artifacts pack` has written."
        ),
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="If the store has a different artifact for the same key, use the file's."),
    ] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Add the run in a file to the store, after a check of all its bytes. Unpack only files that you trust."""
    from artifacts.packs.unpack import unpack
    from flows.graph.selection import store_to_fill

    target = store_to_fill(store)
    with progress_bar("unpack") as report:
        done = unpack(target, file, replace, report, print_waiting)
    if as_json:
        print_json(asdict(done))
        return
    print_added(target, done)


def push_run(
    address: Address,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help=f"{RUN} Default: the newest run.")] = None,
    without: Without = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Send a run with all its artifacts to S3 or another address; only what is missing there.

    An interrupted push is continued by the same command. `cocondenser artifacts pull` gets the run.
    """
    from artifacts.packs.push import push
    from artifacts.runs import readable_runs
    from flows.runs.evaluated import find_run
    from pipeline.errors import InputError
    from pipeline.formatting import counted
    from tasks.terminal import size

    source = existing_store(store)
    chosen = find_run(source, run) if run is not None else next(readable_runs(source), None)
    if chosen is None:
        raise InputError(f"{source.root}: no run; `cocondenser run` makes one")
    with progress_bar("push") as report:
        done = push(source, chosen, address, without or [], report)
    if as_json:
        print_json(asdict(done))
        return
    left_out = f", without {', '.join(done.left_out)}" if done.left_out else ""
    text = f"{done.address}: {done.run}, {counted(done.artifacts, 'artifacts')}{left_out}, {done.new} of them new"
    out.print(f"{text}; {size(done.sent)} of {size(done.bytes)} sent", markup=False, highlight=False, soft_wrap=True)


def pull_run(
    address: Address,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A recipe (its newest run there), or a name that `cocondenser artifacts pushed` shows. "
            "Default: the newest run there.",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="If the store has a different artifact for the same key, use that of ADDRESS."),
    ] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Get a run that was pushed, after a check of all its bytes. Pull only from addresses that you trust.

    Only what the store does not have is read. An interrupted pull is continued by the same command.
    """
    from artifacts.packs.pull import pull
    from flows.graph.selection import store_to_fill

    target = store_to_fill(store)
    with progress_bar("pull") as report:
        done = pull(target, address, run, replace, report, print_waiting)
    if as_json:
        print_json(asdict(done))
        return
    print_added(target, done)


def list_pushed(address: Address, as_json: Json = False) -> None:
    """List the runs that were pushed to an address, newest first."""
    from artifacts.packs.push import pushed_runs

    names = pushed_runs(address)
    if as_json:
        print_json(names)
        return
    out.print("\n".join(names), markup=False, highlight=False, soft_wrap=True)


def print_added(target: "Store", done: "Unpacked") -> None:
    """Says what `unpack` or `pull` added to the store."""
    from pipeline.formatting import counted
    from tasks.terminal import size

    started = f"the run of {done.recipe} started {done.created[:19]} UTC"
    text = f"{target.root}: {started}, {counted(done.artifacts, 'artifacts')}"
    out.print(f"{text}, {done.new} of them new; {size(done.bytes)}", markup=False, highlight=False, soft_wrap=True)
    for what, nodes in (("the store's own artifact is used:", done.kept), ("not included:", done.left_out)):
        if nodes:
            out.print(f"{what} {', '.join(nodes)}", markup=False, highlight=False, soft_wrap=True)
    for line in done.damaged:
        warn(line)


@contextmanager
def progress_bar(what: str) -> "Iterator[Report]":
    """Yields a function that shows (bytes done, all bytes)."""
    from tasks.terminal import bar, shown_in

    with shown_in(terminal), bar(what) as progress:
        yield lambda done, total: progress(done // MEGABYTE, max(total // MEGABYTE, 1), "MB")


def print_waiting(holder: "Holder") -> None:
    """Says which other process this one waits for."""
    doing = f"building {holder.node}" if holder.stage != "unpack" else "adding the same run"
    terminal.print(f"waiting for {holder}, which is {doing}", markup=False, highlight=False, soft_wrap=True)
