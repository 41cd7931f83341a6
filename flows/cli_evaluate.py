"""`cocondenser evaluate`: run files of any systems in one table, outside the store."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli_options import Json, Samples, SampleSeed, TestOfDifferences, out, print_json, terminal, warn

if TYPE_CHECKING:
    from pipeline.evaluate_files import Counts, Estimates


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Option(
            "--run", metavar="FILE", help="A TREC run, or MS MARCO's three columns; plain or packed. May stand often."
        ),
    ],
    qrels: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Judgements: TREC's 4 columns, BEIR's tsv, or the test of a qrels.parquet."),
    ],
    relevance: Annotated[
        int, typer.Option(min=1, help="Least judgement that is relevant; 2 for TREC Deep Learning. nDCG takes grades.")
    ] = 1,
    test: TestOfDifferences = "randomisation",
    samples: Samples = 10_000,
    seed: SampleSeed = 42,
    as_json: Json = False,
) -> None:
    """Measure run files of any systems by judgements, with 95 % intervals; of several, how far they differ."""
    from pipeline.evaluate_files import evaluate_files

    with terminal.status("Measuring ..."):
        found = evaluate_files(runs, qrels, relevance, test, samples, seed)
    if as_json:
        print_json(asdict(found))
        return
    out.print(f"{found.questions:,} questions, mean [95 % interval]", highlight=False)
    out.print(table(found.systems))
    for pair in found.differences:
        out.print(f"\n{pair.a} − {pair.b}", markup=False, highlight=False, soft_wrap=True)
        out.print(difference(pair.measures))
    if found.questions_without_relevant:
        warn(f"{qrels}: questions left out, for want of a relevant passage: {found.questions_without_relevant:,}")
    for name, counts in found.counts.items():
        for line in warnings(counts):
            warn(f"{name}: {line}")


def table(systems: "dict[str, Estimates]") -> Table:
    """A row a measure, a column a system."""
    from pipeline.measures import MEASURES
    from pipeline.tables import estimate_text

    shown = Table(box=None, pad_edge=False)
    shown.add_column("")
    for name in systems:
        shown.add_column(escape(name), justify="right", overflow="fold")
    for measure in MEASURES:
        shown.add_row(measure, *(estimate_text(figures[measure]) for figures in systems.values()))
    return shown


def difference(figures: "Estimates") -> Table:
    """A row a measure."""
    from pipeline.tables import DIFFERENCE, difference_texts

    shown = Table(box=None, pad_edge=False)
    for name in ("", "difference", *DIFFERENCE):
        shown.add_column(name, justify="right" if name else "left")
    for measure, found in figures.items():
        shown.add_row(measure, *difference_texts(found))
    return shown


def warnings(counts: "Counts") -> list[str]:
    """What a reader of the figures must know of a file."""
    said = []
    if counts.questions_without_results:
        said.append(f"questions without results, each counted as zero: {counts.questions_without_results:,}")
    if counts.rows_of_other_questions:
        of = f"{counts.rows_of_other_questions:,} of {counts.rows:,}"
        said.append(f"rows left out, whose questions have no relevant passage in the judgements: {of}")
    return said
