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
    warn,
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
            help="Relevance judgements of dev questions (not test) that may prove another method or weight better: "
            f"{QRELS_FORMATS}.",
        ),
    ] = None,
    method: Annotated[
        Literal["z_score_sum", "weighted_sum", "reciprocal_rank"] | None,
        typer.Option(help="Fusion method (default: z_score_sum, unless --qrels prove another one better)."),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            help="Weight of the first run, between 0 and 1; the other runs share the rest equally "
            "(default: the same weight for all, unless --qrels prove another one better)."
        ),
    ] = None,
    relevance: Relevance = 1,
    depth: Annotated[int, typer.Option(min=1, help="Number of passages written per question.")] = 1000,
    as_json: Json = False,
) -> None:
    """Combine runs of any systems into one: the sum of their z-normalised scores, with equal weights.

    Another method or weight is used if you name it, or if at least 50 judged dev questions (--qrels) prove it better.
    """
    from artifacts.outside import check_outside
    from pipeline.evaluate.fusion.files import fuse_files
    from pipeline.evaluate.tables.short_tables import fusion_text
    from pipeline.formatting import share_text

    check_outside(output, f"--out {output}")
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
    if fused.partial:
        warn(f"questions that are not in all runs: {fused.partial:,} of {fused.questions:,}")
    text = f"{output}: {fusion_text(fused.method, fused.weight, fused.why, fused.reciprocal_k)}"
    out.print(text, markup=False, highlight=False, soft_wrap=True)
