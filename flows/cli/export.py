"""`cocondenser export`: a finished run's model, index and runs, for use outside the store."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from flows.cli.options import Json, OfRecipe, StoreFolder, out, print_json, print_table, terminal
from pipeline.paths import given


def export(
    folder: Annotated[Path, typer.Argument(parser=given, metavar="OUT", help="The folder to write.")],
    recipe: OfRecipe = None,
    model: Annotated[
        str | None, typer.Option(metavar="NODE", help="The model of this node; else of the last dense run.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="model, onnx, run or index; may stand several times. Else all there is."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Write a finished run's model (for sentence-transformers, and as ONNX), ranked lists and index, with a README."""
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from flows.runs.export import export as write
    from pipeline.formatting import share_text
    from tasks.terminal import shown_in, size

    with shown_in(terminal):
        done = write(Store(store_folder(store)), folder, recipe, model, only or [], overwrite)
    if as_json:
        print_json({"out": folder.absolute(), **asdict(done)})
        return
    out.print(f"{done.model} of {done.recipe} is in {folder}", markup=False, highlight=False, soft_wrap=True)
    sizes = Table(Column(), Column(justify="right"), box=None, pad_edge=False, show_header=False)
    for part in done.parts:
        held = [count for path, count in done.files.items() if Path(path).parts[0] == part]
        sizes.add_row(f"{part}/", size(sum(held)))
    out.print(sizes)
    if done.reading and done.reading["questions_differing"] + done.reading["passages_differing"]:
        shown = "{questions_differing} of {questions} questions and {passages_differing} of {passages} passages"
        told = f"{shown.format(**done.reading)} are read otherwise there: README.md says why"
        terminal.print(told, style="dim", highlight=False, soft_wrap=True)
    if done.onnx is None or done.milliseconds is None:
        return
    for name, figures in done.onnx["files"].items():
        if "least_cosine" in figures:
            line = f"cosine {figures['mean_cosine']:.5f} in the mean, {figures['least_cosine']:.5f} at least"
        else:
            line = f"differs from torch by {figures['greatest_difference']:.1e} of a vector's length at most"
        out.print(f"{name}: {size(done.files[f'onnx/{name}'])}, {line}", highlight=False, soft_wrap=True)
    found = done.onnx["retrieval"]
    columns = [f"MRR@10, {found['questions']:,} of {found['split']}", "nDCG@10"] if found else []
    table = Table("questions by", *(Column(name, justify="right") for name in ("ms each", *columns)), box=None)
    for way, taken in done.milliseconds.items():
        measured = [share_text(value) for value in found[way].values()] if found else []
        table.add_row(way, f"{taken:.2f}", *measured)
    print_table(table)
