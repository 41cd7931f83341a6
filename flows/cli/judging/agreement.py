"""`cocondenser agreement`: how far two judges agree."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import (
    QRELS_FORMATS,
    Json,
    Relevance,
    Samples,
    SampleSeed,
    columns,
    out,
    print_json,
    print_table,
    warn,
)
from pipeline.paths import expand_home

Qrels = Annotated[
    Path, typer.Argument(parser=expand_home, metavar="QRELS", help=f"Relevance judgements: {QRELS_FORMATS}.")
]


def agreement(
    a: Qrels,
    b: Qrels,
    relevance: Relevance = 1,
    samples: Samples = 10_000,
    seed: SampleSeed = 42,
    as_json: Json = False,
) -> None:
    """Compare two judges on the passages that both have judged: Cohen's kappa with intervals over questions."""
    from pipeline.evaluate.agreement import agreement as measure_agreement
    from pipeline.formatting import counted, estimate_text

    found = measure_agreement(a, b, relevance, samples, seed)
    if as_json:
        print_json({"a": str(a), "b": str(b), **asdict(found)})
        return
    passages, questions = counted(found.passages, "passages"), counted(found.questions, "questions")
    out.print(f"{passages} of {questions}, agreement [95 % interval]", markup=False, highlight=False)
    table = columns()
    for name in ("", ""):
        table.add_column(name)
    names = {
        "same": "same grade",
        "kappa": "kappa",
        "weighted": "weighted kappa",
        "relevant": "kappa of relevance",
    }
    for name, text in names.items():
        table.add_row(text, estimate_text(found.measures[name]))
    print_table(table)
    heading = f"\npassages by their grades in {a} (rows) and {b} (columns)"
    out.print(heading, markup=False, highlight=False, soft_wrap=True)
    counts = columns()
    for heading in ("", *map(str, found.grades)):
        counts.add_column(heading, justify="right")
    for grade, row in zip(found.grades, found.table, strict=True):
        counts.add_row(str(grade), *map(str, row))
    print_table(counts)
    for path, count in ((a, found.only_a), (b, found.only_b)):
        if count:
            warn(f"{path}: passages that only this file judges, left out: {count:,}")
