"""`cocondenser compare`: two runs of the store, system by system and question by question."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli_artifacts import opened
from flows.cli_options import Json, Samples, SampleSeed, StoreFolder, TestOfDifferences, out, print_json, terminal, warn

if TYPE_CHECKING:
    from flows.compared import Question, Side
    from pipeline.compare import Row

Which = typer.Argument(help="A recipe (its newest run), the id that `cocondenser runs` shows, or a report.html.")


def compare(
    a: Annotated[str, Which],
    b: Annotated[str, Which],
    measure: Annotated[
        str, typer.Option(metavar="MEASURE", help="RR@10, nDCG@10, R@100, AP, Success@20, ...")
    ] = "RR@10",
    changes: Annotated[int, typer.Option(min=0, help="Questions shown of those that changed most.")] = 5,
    test: TestOfDifferences = "randomisation",
    samples: Samples = 10_000,
    seed: SampleSeed = 42,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: each system that both have, what was best on dev, and the questions that changed most."""
    from flows.compared import changed_questions, pairs_of, side, split_of
    from pipeline.compare import compare as figures_of

    shelf = opened(store)
    sides = side(shelf, a), side(shelf, b)
    with terminal.status("Comparing ..."):
        split, pairs = split_of(*sides), pairs_of(*sides)
        folders = [one.folder for one in sides]
        found = figures_of(folders[0], folders[1], split, pairs, measure, changes, test, samples, seed)
        questions = changed_questions(sides, pairs[-1], split, found.changes)
    rows = [(*labels(sides, pair), row) for pair, row in found.rows.items()]
    for one, alone in zip(sides, (found.questions_of_a_alone, found.questions_of_b_alone), strict=True):
        if alone:
            warn(f"{one.name}: {alone:,} questions that the other has not are left out")
    if sides[0].collection != sides[1].collection:
        warn("the two runs have different collections")
    if as_json:
        counts = {key: value for key, value in asdict(found).items() if key.startswith("questions")}
        systems = [{"a_system": x, "b_system": y, **asdict(row)} for x, y, row in rows]
        named = {"a": sides[0].name, "b": sides[1].name, "split": split, "measure": measure}
        print_json({**named, **counts, "systems": systems, "changes": [asdict(question) for question in questions]})
        return
    out.print(f"{measure} on {found.questions:,} questions of {split}", highlight=False)
    out.print(f"a  {sides[0].name}\nb  {sides[1].name}\n", markup=False, highlight=False)
    out.print(table(rows))
    if questions:
        out.print(f"\nThe questions that changed most, {rows[-1][0]} to {rows[-1][1]}", markup=False, highlight=False)
    for question in questions:
        show(question)


def labels(sides: "tuple[Side, Side]", pair: tuple[str, str]) -> tuple[str, str]:
    a, b = (one.labels.get(name, name) for one, name in zip(sides, pair, strict=True))
    return a, b


def table(rows: "list[tuple[str, str, Row]]") -> Table:
    from pipeline.tables import estimate_text, p_text, share_text

    shown = Table(box=None, pad_edge=False)
    shown.add_column("", overflow="fold")
    for name in ("a", "b", "b − a", "p (Holm)", "wins", "ties", "losses"):
        shown.add_column(name, justify="right", no_wrap=True)
    for a, b, row in rows:
        figures = share_text(row.a), share_text(row.b), estimate_text(asdict(row)), p_text(row.p_holm)
        counts = (f"{count:,}" for count in (row.wins, row.ties, row.losses))
        shown.add_row(escape(a if a == b else f"best on dev: {a}, {b}"), *figures, *counts)
    return shown


def show(question: "Question") -> None:
    from pipeline.tables import share_text

    out.print(f"\n{escape(question.text)}", style="bold", highlight=False)
    for name, figure, answer in (("a", question.a, question.a_first), ("b", question.b, question.b_first)):
        line = f"  {name}  {share_text(figure):>5}  {'no passage' if answer is None else one_line(answer)}"
        out.print(line, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")


def one_line(answer: dict[str, Any]) -> str:
    """Title and text; a tick before what was judged relevant."""
    words = f"{answer['title']}: {answer['text']}".removeprefix(": ").split()
    return " ".join(["✓", *words] if answer["relevant"] else words)
