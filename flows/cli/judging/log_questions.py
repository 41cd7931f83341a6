"""`cocondenser log-questions`: training questions from a log of searches."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, OfRecipe, StoreFolder, existing_store, out, print_json, terminal, warn
from pipeline.paths import expand_home


def log_questions(
    logs: Annotated[
        list[Path], typer.Argument(parser=expand_home, metavar="LOG", help="Logs of `serve-search --log`.")
    ],
    folder: Annotated[
        Path, typer.Option("--out", parser=expand_home, metavar="FOLDER", help="New folder, in BEIR's layout.")
    ],
    judged: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home,
            metavar="FOLDER",
            help="Folder of `cocondenser judge`: its passages and its test questions, which then train nothing.",
        ),
    ] = None,
    impressions: Annotated[
        int, typer.Option(min=1, help="Searches that must have shown a passage for its question.")
    ] = 3,
    coec: Annotated[
        float,
        typer.Option(
            min=0, help="Clicks over expected clicks (1: as often as its positions let expect) of a relevant passage."
        ),
    ] = 1.0,
    recipe: OfRecipe = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Turn the clicks of a search log into training questions, corrected for the positions of the passages."""
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from flows.judging.clicks import write_clicked
    from pipeline.errors import InputError
    from pipeline.formatting import counted

    if judged is not None and recipe is not None:
        raise InputError("--recipe, --judged: the passages come from one of them; leave one out")
    with terminal.status("Reading ..."):
        passages = Store(store_folder(store)) if judged is not None else existing_store(store)
        found = write_clicked(folder, logs, passages, recipe, judged, impressions, coec)
    if as_json:
        print_json({"out": str(folder), **asdict(found)})
        return
    lines = {
        "questions of the log that are test questions, left out": found.left_out_judged,
        "clicked passages that the collection lacks, left out": found.unknown_passages,
        "clicks on searches that the logs lack, left out": found.lost_clicks,
        "lines of the logs that break off, left out": found.incomplete_lines,
    }
    for text, count in lines.items():
        if count:
            warn(f"{text}: {count:,}")
    training = f"{counted(found.questions, 'training questions')} with {counted(found.pairs, 'relevant passages')}"
    text = f"{folder}: {training}, of {counted(found.searches, 'searches')}"
    if judged is not None:
        text += f"; {counted(found.judged_questions, 'test questions')}"
    out.print(text, markup=False, highlight=False, soft_wrap=True)
