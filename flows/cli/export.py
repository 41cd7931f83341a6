"""`cocondenser export`: writes model, index and ranked lists of a finished run for other programs."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from flows.cli.options import Json, OfRecipe, StoreFolder, existing_store, out, print_json, print_table, terminal
from pipeline.paths import expand_home


def export(
    folder: Annotated[Path, typer.Argument(parser=expand_home, metavar="OUT", help="Folder to write.")],
    recipe: OfRecipe = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NODE", help="Node whose model is exported (default: the model of the last dense retrieval)."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="Export only this part: model, onnx, run, index or vectors (default: all but vectors). Repeatable.",
        ),
    ] = None,
    float16: Annotated[
        bool, typer.Option("--float16", help="Vectors of half the size, with equal values (part vectors).")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="hub:NAME",
            help="Send the folder to the Hugging Face hub as the private model NAME or USER/NAME. An earlier export "
            "in OUT is sent as it is.",
        ),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Everyone may read the model on the hub.")] = False,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Write a finished run as folders for other programs.

    These are the model (for sentence-transformers, and as ONNX), the ranked lists and the index, with a README.
    The part `vectors` is one Parquet table of passages and vectors for databases (docs/databases.md).
    """
    from flows.runs.export import export_run
    from flows.runs.publish import check_push, earlier_export, publish
    from pipeline.export.vectors import VectorType
    from pipeline.formatting import share_text
    from tasks.terminal import shown_in, size

    done = earlier_export(folder, recipe, model, only or [], float16) if push and not overwrite else None
    target = check_push(push, public)
    with shown_in(terminal):
        numbers: VectorType = "float16" if float16 else "float32"
        if done is None:
            done = export_run(existing_store(store), folder, recipe, model, only or [], overwrite, numbers)
    address = publish(folder, done, target, public) if target else None
    if as_json:
        print_json({"out": folder.absolute(), "address": address, **asdict(done)})
        return
    out.print(f"{done.model} of {done.recipe} is in {folder}", markup=False, highlight=False, soft_wrap=True)
    sizes = Table(Column(), Column(justify="right"), box=None, pad_edge=False, show_header=False)
    for part in done.parts:
        part_sizes = [count for path, count in done.files.items() if Path(path).parts[0] == part]
        sizes.add_row(f"{part}/", size(sum(part_sizes)))
    out.print(sizes)
    if address:
        out.print(f"sent to {address}", markup=False, highlight=False, soft_wrap=True)
    if done.reading and done.reading["questions_differing"] + done.reading["passages_differing"]:
        differing = "{questions_differing} of {questions} questions and {passages_differing} of {passages} passages"
        text = f"the exported tokenizer reads {differing.format(**done.reading)} differently: README.md says why"
        terminal.print(text, style="dim", highlight=False, soft_wrap=True)
    if done.onnx is None or done.milliseconds is None:
        return
    for name, figures in done.onnx["files"].items():
        if "least_cosine" in figures:
            line = f"mean cosine {figures['mean_cosine']:.5f}, lowest {figures['least_cosine']:.5f}"
        else:
            line = f"differs from torch by {figures['greatest_difference']:.1e} of a vector's length at most"
        out.print(f"{name}: {size(done.files[f'onnx/{name}'])}, {line}", highlight=False, soft_wrap=True)
    retrieval = done.onnx["retrieval"]
    columns = [f"MRR@10, {retrieval['questions']:,} of {retrieval['split']}", "nDCG@10"] if retrieval else []
    table = Table("questions by", *(Column(name, justify="right") for name in ("ms each", *columns)), box=None)
    for runtime, milliseconds in done.milliseconds.items():
        measures = [share_text(value) for value in retrieval[runtime].values()] if retrieval else []
        table.add_row(runtime, f"{milliseconds:.2f}", *measures)
    print_table(table)
