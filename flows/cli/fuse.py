"""`cocondenser fuse`: runs of any systems made one, outside the store."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from flows.cli.options import Json, columns, out, print_json, print_table, warn
from pipeline.paths import given


def fuse(
    runs: Annotated[
        list[Path],
        typer.Argument(
            parser=given, metavar="RUN RUN...", help="TREC runs, or MS MARCO's three columns; plain or packed."
        ),
    ],
    output: Annotated[Path, typer.Option("--out", parser=given, metavar="FILE", help="The TREC run to write.")],
    qrels: Annotated[
        Path | None,
        typer.Option(
            parser=given,
            metavar="FILE",
            help="Judgements of dev, not test, to choose by: TREC's 4 columns, BEIR's tsv or qrels.parquet.",
        ),
    ] = None,
    method: Annotated[
        Literal["reciprocal_rank", "weighted_sum", "z_score_sum"] | None,
        typer.Option(help="The better of the first two on the judgements where not given; without them z_score_sum."),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            help="Share of the first run, between 0 and 1; the others have equal parts of the rest. "
            "The best on the judgements where not given; without them all runs weigh alike."
        ),
    ] = None,
    relevance: Annotated[int, typer.Option(min=1, help="Least judgement that is relevant.")] = 1,
    depth: Annotated[int, typer.Option(min=1, help="Passages written for each question.")] = 1000,
    as_json: Json = False,
) -> None:
    """Join runs of any systems into one, by reciprocal ranks or scores; dev's judgements choose method and weight."""
    from pipeline.evaluate.fuse_files import fuse_files
    from pipeline.evaluate.short_tables import METHODS
    from pipeline.formatting import counted, share_text

    fused = fuse_files(runs, output, qrels=qrels, method=method, weight=weight, relevance=relevance, depth=depth)
    if as_json:
        print_json({"out": output, **asdict(fused)})
        return
    if fused.measured:
        table = columns()
        table.add_column(min_width=10)
        table.add_column("MRR@10")
        for name, value in fused.measured.items():
            table.add_row(escape(name), share_text(value))
        print_table(table)
    if fused.unlisted:
        warn(f"{qrels}: questions without results, each counted as zero: {fused.unlisted:,}")
    how = METHODS[fused.method]
    chosen = f", chosen on {counted(fused.judged, 'questions')} of {qrels}" if fused.chosen else ""
    chosen = f", not tuned: {fused.not_tuned}" if fused.not_tuned else chosen
    out.print(
        f"{output}: {how}, weight {fused.weight:.3g} of {runs[0]}{chosen}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
