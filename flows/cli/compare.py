"""`cocondenser compare`: two runs of the store, system by system and question by question."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.artifacts import opened
from flows.cli.options import (
    Json,
    Samples,
    SampleSeed,
    StoreFolder,
    TestOfDifferences,
    columns,
    out,
    print_json,
    print_table,
    terminal,
    warn,
)

if TYPE_CHECKING:
    from flows.runs.compare import Compared, Comparison, Question

Which = typer.Argument(help="A recipe (its newest run), an id that `cocondenser runs` shows, or a report.html.")


def compare(
    a: Annotated[str, Which],
    b: Annotated[str, Which],
    measure: Annotated[str, typer.Option(metavar="MEASURE", help="RR@10, nDCG@10, R@100, AP, hits@20, ...")] = "RR@10",
    number: Annotated[int, typer.Option("--changes", min=0, help="Questions shown of those that changed most.")] = 5,
    test: TestOfDifferences = "randomisation",
    samples: Samples = 10_000,
    seed: SampleSeed = 42,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: each system that both have, what was best on dev, and the questions that changed most."""
    from flows.runs.compare import comparison
    from flows.runs.evaluated import found
    from pipeline.formatting import counted

    shelf = opened(store)
    with terminal.status("Comparing ..."):
        both = comparison(found(shelf, a), found(shelf, b), measure, number, test, samples, seed)
    if as_json:
        print_json(as_dict(both))
        return
    for text in both.warnings:
        warn(text)
    out.print(f"{both.measure} on {counted(both.questions, 'questions')} of {both.split}", highlight=False)
    out.print(f"a  {both.a.name}\nb  {both.b.name}\n", markup=False, highlight=False)
    print_table(table(both.systems))
    if both.changes:
        last = both.systems[-1]
        title = f"\nThe questions that changed most, {last.a_label} to {last.b_label}"
        out.print(title, markup=False, highlight=False)
    for question in both.changes:
        show(question)


def as_dict(both: "Comparison") -> dict[str, Any]:
    """For JSON."""
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


def table(systems: "list[Compared]") -> Table:
    """A row a pair of systems."""
    from pipeline.evaluate.short_tables import DIFFERENCE, difference_texts
    from pipeline.formatting import share_text

    shown = columns()
    shown.add_column("", min_width=10)
    for name in ("a", "b", "b − a", *DIFFERENCE):
        shown.add_column(name, justify="right")
    for system in systems:
        same = system.a_label == system.b_label
        name = system.a_label if same else f"{system.a_label}, {system.b_label}"
        row = system.figures
        figures = share_text(row.a), share_text(row.b), *difference_texts(asdict(row))
        shown.add_row(escape(f"{'best on dev: ' if system.best_on_dev else ''}{name}"), *figures)
    return shown


def show(question: "Question") -> None:
    """Its text, and a line for the first passage of each side."""
    from pipeline.formatting import share_text

    out.print(f"\n{escape(question.text)}", style="bold", highlight=False)
    for name, figure, answer in (("a", question.a, question.a_first), ("b", question.b, question.b_first)):
        line = f"  {name}  {share_text(figure):>5}  {'no passage' if answer is None else one_line(answer)}"
        out.print(line, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")


def one_line(answer: dict[str, Any]) -> str:
    """Title and text; a tick before what was judged relevant."""
    words = f"{answer['title']}: {answer['text']}".removeprefix(": ").split()
    return " ".join(["✓", *words] if answer["relevant"] else words)
