"""Writes ablation.html: the tables of an ablation, its curves, and the command that builds each cell."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.ablation import table
from pipeline.ablation.config import UNTUNED, AblationConfig, CellConfig
from pipeline.ablation.data import AblationData, cell_name
from pipeline.ablation.table import HEADINGS, Figure
from pipeline.evaluate.significance import paired
from pipeline.formatting import counted, p_text, share_text
from pipeline.report.build import ATTENTION
from pipeline.report.figures import Picture
from pipeline.report.panels import entropy_panels, first_epochs, size_curves, training_curves
from pipeline.templates import environment, styles

FIRST_EPOCHS = 10
"""Epochs of the loss curve (Condenser, version 1, figure 5)."""

TITLES = HEADINGS | {"mined": "+ mined negatives"}
"""Titles of the pictures."""


def page(
    data: AblationData, figures: Sequence[Figure], tests: Sequence[Figure], gains: Sequence[Figure]
) -> tuple[str, list[Picture]]:
    """Returns the page, which needs no other file and no network, and its pictures. Equal inputs give equal bytes."""
    from markupsafe import Markup

    config = data.config
    split = table.splits(figures)[0]
    first = first_measure(config, figures, split)
    # Dev figures are too good for what was chosen on dev (checkpoints, fusion with BM25).
    unseen = "test" if "test" in table.splits(figures) else split
    unseen_first = first_measure(config, figures, unseen)
    by_size = list(size_pictures(data, figures, split, first))
    trainings = list(training_pictures(data))
    panels = list(attention_pictures(data))
    pages = environment()
    pages.filters["svg"] = Markup  # only for pictures, whose texts are rows and measures
    page = pages.get_template("ablation.html").render(
        css=styles("palette.css", "report.css", "ablation.css"),
        title=config.title,
        lead=lead(config),
        first=f"{table.heading(first)}, {split}",
        headings=table.headings(config),
        tables=[(split, list(split_tables(config, figures, tests, split))) for split in table.splits(figures)],
        note=table.note(config, figures, tests),
        missing=without_run(config, figures),
        differences=[(name, difference_rows(tests, split, first, *column)) for name, column in column_headings(config)],
        reference=config.reference,
        gains=[
            (name, compared_with(gains, *column), difference_rows(gains, unseen, unseen_first, *column))
            for name, column in column_headings(config)
        ],
        gains_first=f"{table.heading(unseen_first)}, {unseen}",
        gains_note=table.tested_text(config, gains, "p"),
        by_size=by_size,
        trainings=trainings,
        panels=panels,
        seeds=seed_rows(config, figures, split, first),
        cells=[(cell_name(config, n), cell.start, command(cell)) for n, cell in enumerate(config.cells)],
        lineage=lineage(data),
    )
    return page, [*by_size, *trainings, *panels]


def first_measure(config: AblationConfig, figures: Sequence[Figure], split: str) -> str:
    """Returns the first shown measure that the split has."""
    return (table.measures_of(config, figures, split) or config.measures)[0]


def lineage(data: AblationData) -> list[tuple[str, str]]:
    """Returns (`evaluate, coCondenser, seed 1`, digest) of the artifacts behind the data."""
    shown = [("collection", digest) for digest in data.collections]
    for n, cell in enumerate(data.cells):
        shown += [(f"{stage}, {cell_name(data.config, n)}", digest) for stage, digest in cell.inputs.items()]
    return shown


def lead(config: AblationConfig) -> str:
    """Returns `4 rows, 2 seeds`."""
    rows, sizes, seeds = ({getattr(cell, name) for cell in config.cells} for name in ("row", "size", "seed"))
    several = [f"{len(sizes)} sizes of training data"] if len(sizes) > 1 else []
    return ", ".join([counted(len(rows), "rows"), *several, counted(len(seeds), "seeds")])


def row_values(line: table.Line) -> dict[str, Any]:
    """Returns a row of a table, its figures as text; the first stage has one figure for all columns."""
    cells = []
    alone = any(figure and figure["negatives"] is None for figure, _ in line.cells)
    for figure, sure in line.cells:
        text = table.cell_text((figure, False)).split(" ", 1)
        mean = "" if alone and not figure else text[0]
        cells.append({"mean": mean, "interval": text[1] if figure else "", "sure": sure})
    return {"row": line.row, "cells": cells}


def column_headings(config: AblationConfig) -> list[tuple[str, tuple[str, int | None]]]:
    return list(zip(table.headings(config), table.table_columns(config), strict=True))


def split_tables(
    config: AblationConfig, figures: Sequence[Figure], tests: Sequence[Figure], split: str
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields (heading, rows) of each measure."""
    for measure in table.measures_of(config, figures, split):
        lines = table.table_lines(config, figures, tests, split, measure)
        yield table.heading(measure), [row_values(line) for line in lines]


def without_run(config: AblationConfig, figures: Sequence[Figure]) -> list[str]:
    """Returns rows without figures: no index can search them."""
    with_figures = {figure["row"] for figure in figures}
    return [row for row in dict.fromkeys(cell.row for cell in config.cells) if row not in with_figures]


def difference_rows(
    differences: Sequence[Figure], split: str, measure: str, negatives: str, size: int | None
) -> list[dict[str, Any]]:
    """Returns one measure of each row, from `tests` or `gains`."""
    place = (split, negatives, size, measure)
    matching = [t for t in differences if (t["split"], t["negatives"], t["size"], t["measure"]) == place]
    return [
        {
            "row": t["row"],
            "mean": f"{'+' if t['mean'] > 0 else ''}{share_text(t['mean'])}",
            "interval": f"[{share_text(t['low'])}, {share_text(t['high'])}]",
            "p": p_text(t["p_holm"]),
            "sure": paired.is_significant(t),
            "counts": " / ".join(f"{t[name]:,}" for name in ("wins", "ties", "losses")),
        }
        for t in matching
    ]


def compared_with(gains: Sequence[Figure], negatives: str, size: int | None) -> str:
    """Returns the heading of the compared column; `BM25 alone` for a fusion with it."""
    own = [g for g in gains if (g["negatives"], g["size"]) == (negatives, size)]
    if not own:
        return ""
    earlier = own[0]["reference_negatives"]  # the same in all
    return HEADINGS[earlier] if earlier else f"{own[0]['reference']} alone"


def size_pictures(data: AblationData, figures: Sequence[Figure], split: str, measure: str) -> Iterator[Picture]:
    """Yields a picture of a measure by training questions for each kind of negatives."""
    config = data.config
    if len({cell.size for cell in config.cells}) < 2:
        return
    for negatives in dict.fromkeys(kind for kind, _ in table.table_columns(config) if kind != UNTUNED):
        rows: dict[str, list[tuple[float, float, float, float]]] = {}
        for f in figures:
            here = (f["negatives"], f["split"], f["measure"], f["seed"]) == (negatives, split, measure, None)
            if here and f["row"] in {cell.row for cell in config.cells}:
                questions = f["size"] if f["size"] is not None else data.training_questions
                rows.setdefault(f["row"], []).append((questions, f["mean"], f["low"], f["high"]))
        if rows:
            yield size_curves(f"sizes-{negatives}", rows, table.heading(measure), TITLES[negatives])


def training_pictures(data: AblationData) -> Iterator[Picture]:
    """Yields pictures of stage 1: the loss of the first epochs and, if it validates, dev MRR@10 and loss by epoch."""
    drawn = [(cell, one.curves) for cell, one in zip(data.config.cells, data.cells, strict=True) if one.curves]
    losses = {cell.row: curves.loss for cell, curves in drawn if curves.loss}
    validated = {cell.row: curves.dev for cell, curves in drawn if curves.dev}
    if losses:
        epochs = min(FIRST_EPOCHS, max(cell.epochs for cell, curves in drawn if curves.loss))
        title = f"Stage 1, loss of the first {epochs} epochs" if epochs > 1 else "Stage 1, loss"
        yield first_epochs("first-epochs", losses, epochs, title)
    if validated:
        yield training_curves("training-dev", validated, "dev MRR@10", "Stage 1, reranking of dev candidates")
        yield training_curves("training-loss", losses, "loss", "Stage 1, loss")


def attention_pictures(data: AblationData) -> Iterator[Picture]:
    """Yields a picture of [CLS] attention entropy by layer, one panel per row, pre-trained and fine-tuned."""
    drawn = zip(data.config.cells, data.cells, strict=True)
    panels = {cell.row: one.curves.entropy for cell, one in drawn if one.curves and one.curves.entropy}
    if panels:
        yield entropy_panels("attention", panels, ATTENTION)


def seed_rows(
    config: AblationConfig, figures: Sequence[Figure], split: str, measure: str
) -> list[tuple[str, str, list[str]]]:
    """Returns (row, column, the measure of each seed) if there are several seeds."""
    if len({cell.seed for cell in config.cells}) < 2:
        return []
    own = {
        (f["row"], f["negatives"], f["size"], f["seed"]): f["mean"]
        for f in figures
        if (f["split"], f["measure"]) == (split, measure)
    }
    seeds = sorted({cell.seed for cell in config.cells})
    return [
        (row, heading, [share_text(own[row, *column, seed]) if (row, *column, seed) in own else "–" for seed in seeds])
        for row in dict.fromkeys(cell.row for cell in config.cells)
        for heading, column in column_headings(config)
        if column[0] != UNTUNED
    ]


def command(cell: CellConfig) -> str:
    """Returns the command that builds only this cell; DIR: the pre-trained checkpoint of the row that it starts from.

    As an initial model the checkpoint is another artifact, so such a cell is trained again.
    """
    start = ["--set", "initial.pretrained=null", "--set", "initial.checkpoint=DIR"] if cell.start else []
    return shlex.join([*cell.command, *start])
