"""`cocondenser evaluate`: measures run files of any systems, outside the store."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    QRELS_FORMATS,
    Json,
    Relevance,
    RunFiles,
    Samples,
    SampleSeed,
    TestOfDifferences,
    differences_table,
    measures_table,
    out,
    print_json,
    print_table,
    terminal,
    warn,
    warn_questions_without_results,
)
from pipeline.paths import expand_home, without_common_folder

if TYPE_CHECKING:
    from pipeline.evaluate.run_files import Counts


def evaluate(
    runs: RunFiles,
    qrels: Annotated[
        Path,
        typer.Option(
            parser=expand_home, metavar="FILE", help=f"Relevance judgements: {QRELS_FORMATS} (its split test)."
        ),
    ],
    relevance: Relevance = 1,
    test: TestOfDifferences = "randomisation",
    samples: Samples = 10_000,
    seed: SampleSeed = 42,
    as_json: Json = False,
) -> None:
    """Measure run files of any systems with relevance judgements.

    With several run files, the command also shows how much they differ.
    """
    from pipeline.evaluate.run_files import evaluate_files
    from pipeline.formatting import counted

    with terminal.status("Measuring ..."):
        evaluation = evaluate_files(runs, qrels, relevance, test, samples, seed)
    if as_json:
        print_json(asdict(evaluation))
        return
    out.print(f"{counted(evaluation.questions, 'questions')}, mean [95 % interval]", highlight=False)
    names = dict(zip(evaluation.systems, without_common_folder([*evaluation.systems]), strict=True))
    print_table(measures_table({names[path]: figures for path, figures in evaluation.systems.items()}))
    for pair in evaluation.differences:
        out.print(f"\n{names[pair.a]} − {names[pair.b]}", markup=False, highlight=False, soft_wrap=True)
        print_table(differences_table(pair.measures))
    if evaluation.questions_without_relevant:
        warn(f"{qrels}: questions without a relevant passage, left out: {evaluation.questions_without_relevant:,}")
    for name, counts in evaluation.counts.items():
        warn_of_run(name, counts)


def warn_of_run(name: str, counts: "Counts") -> None:
    """Prints what a reader of the figures must know of a run file."""
    warn_questions_without_results(name, counts.questions_without_results)
    if counts.rows_of_other_questions:
        share = f"{counts.rows_of_other_questions:,} of {counts.rows:,}"
        warn(f"{name}: rows of questions without a relevant passage, left out: {share}")
    if counts.shallow:
        warn(f"{name}: {counts.shallow}")
