"""`cocondenser fuse`: combines runs of any systems into one, outside the store."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from flows.cli.options import (
    QRELS_FORMATS,
    Json,
    Relevance,
    RunFiles,
    columns,
    out,
    print_json,
    print_table,
    warn_questions_without_results,
)
from pipeline.paths import expand_home


def fuse(
    runs: RunFiles,
    output: Annotated[Path, typer.Option("--out", parser=expand_home, metavar="FILE", help="TREC run file to write.")],
    qrels: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home,
            metavar="FILE",
            help=f"Relevance judgements of dev questions (not test) that choose method and weight: {QRELS_FORMATS}.",
        ),
    ] = None,
    method: Annotated[
        Literal["reciprocal_rank", "weighted_sum", "z_score_sum"] | None,
        typer.Option(
            help="Fusion method (default: with --qrels the better of the first two, without --qrels z_score_sum)."
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            help="Weight of the first run, between 0 and 1; the other runs share the rest equally "
            "(default: with --qrels the best weight, without --qrels the same weight for all)."
        ),
    ] = None,
    relevance: Relevance = 1,
    depth: Annotated[int, typer.Option(min=1, help="Number of passages written per question.")] = 1000,
    as_json: Json = False,
) -> None:
    """Combine runs of any systems into one, by reciprocal ranks or by scores.

    With --qrels, judgements of dev questions choose the method and the weight.
    """
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
    warn_questions_without_results(str(qrels), fused.unlisted)
    chosen = f", chosen on {counted(fused.judged, 'questions')} of {qrels}" if fused.chosen else ""
    if fused.not_tuned:
        chosen = f", not tuned: {fused.not_tuned}"
    text = f"{output}: {METHODS[fused.method]}, weight {fused.weight:.3g} of {runs[0]}{chosen}"
    out.print(text, markup=False, highlight=False, soft_wrap=True)
