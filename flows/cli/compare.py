"""`cocondenser compare`: compares two runs of the store by system and by question."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import (
    Json,
    Samples,
    SampleSeed,
    StoreFolder,
    TestOfDifferences,
    columns,
    existing_store,
    out,
    print_json,
    print_table,
    terminal,
    warn,
)

if TYPE_CHECKING:
    from flows.runs.compare import ChangedQuestion, Comparison, SystemPair

RUN = "a recipe (its newest run), an id that `cocondenser runs` shows, or a report.html."


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=f"First run: {RUN}")],
    b: Annotated[str, typer.Argument(metavar="B", help=f"Second run: {RUN}")],
    measure: Annotated[
        str, typer.Option(metavar="MEASURE", help="Measure to compare: RR@10, nDCG@10, R@100, AP, hits@20, ...")
    ] = "RR@10",
    number: Annotated[
        int, typer.Option("--changes", min=0, metavar="N", help="Show the N questions that changed most.")
    ] = 5,
    test: TestOfDifferences = "randomisation",
    samples: Samples = 10_000,
    seed: SampleSeed = 42,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: systems that both have, those that answer questions, and the questions that changed most."""
    from flows.runs.compare import compare_runs
    from flows.runs.evaluated import find_evaluated
    from pipeline.formatting import counted

    artifact_store = existing_store(store)
    with terminal.status("Comparing ..."):
        runs = find_evaluated(artifact_store, a), find_evaluated(artifact_store, b)
        both = compare_runs(*runs, measure, number, test, samples, seed)
    if as_json:
        print_json(comparison_as_json(both))
        return
    for text in both.warnings:
        warn(text)
    out.print(f"{both.measure} on {counted(both.questions, 'questions')} of {both.split}", highlight=False)
    out.print(f"a  {both.a.name}\nb  {both.b.name}\n", markup=False, highlight=False)
    print_table(comparison_table(both.systems))
    if both.changes:
        last = both.systems[-1]
        title = f"\nThe questions that changed most, {last.a_label} to {last.b_label}"
        out.print(title, markup=False, highlight=False)
    for question in both.changes:
        print_question(question)


def comparison_as_json(both: "Comparison") -> dict[str, Any]:
    runs = {key: {"recipe": one.run.name, "id": one.id} for key, one in (("a", both.a), ("b", both.b))}
    return {
        **runs,
        "split": both.split,
        "measure": both.measure,
        "questions": both.questions,
        "warnings": both.warnings,
        "systems": [asdict(system) for system in both.systems],
        "changes": [asdict(question) for question in both.changes],
    }


def comparison_table(systems: "list[SystemPair]") -> Table:
    """One row per pair of systems."""
    from pipeline.evaluate.tables.short_tables import DIFFERENCE, difference_texts
    from pipeline.formatting import share_text

    table = columns()
    table.add_column("", min_width=10)
    for name in ("a", "b", "b − a", *DIFFERENCE):
        table.add_column(name, justify="right")
    for system in systems:
        same = system.a_label == system.b_label
        name = system.a_label if same else f"{system.a_label}, {system.b_label}"
        difference = system.figures
        figures = share_text(difference.a), share_text(difference.b), *difference_texts(asdict(difference))
        table.add_row(escape(f"{'answers questions: ' if system.answering else ''}{name}"), *figures)
    return table


def print_question(question: "ChangedQuestion") -> None:
    """Its text, and one line for the first passage of each run."""
    from pipeline.formatting import share_text

    out.print(f"\n{escape(question.text)}", style="bold", highlight=False)
    for name, figure, answer in (("a", question.a, question.a_first), ("b", question.b, question.b_first)):
        line = f"  {name}  {share_text(figure):>5}  {'no passage' if answer is None else passage_line(answer)}"
        out.print(line, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")


def passage_line(answer: dict[str, Any]) -> str:
    """Title and text, with a tick if the passage is relevant."""
    words = f"{answer['title']}: {answer['text']}".removeprefix(": ").split()
    return " ".join(["✓", *words] if answer["relevant"] else words)
