"""`cocondenser search`: a question asked of a finished run."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.options import Json, OfRecipe, StoreFolder, out, print_json, terminal, warn
from pipeline.errors import InputError

if TYPE_CHECKING:
    from flows.serving.answers import Answer
    from flows.serving.engine import Engine

AskBy = Annotated[
    Literal["dense", "fusion", "bm25"] | None,
    typer.Option(help="Ask this; else what was best on dev questions, without any dense."),
]


def search(
    question: Annotated[str, typer.Argument(help="A question, in quotes.")],
    k: Annotated[int, typer.Option("-k", help="Documents shown.")] = 5,
    where: Annotated[
        str | None,
        typer.Option(metavar="EXPRESSION", help="Only of passages whose columns are so: \"source = 'numpy'\"."),
    ] = None,
    recipe: OfRecipe = None,
    by: AskBy = None,
    store: StoreFolder = None,
    json: Json = False,
) -> None:
    """Answer a question from the newest run, by what was best on its dev questions (dense where it has none)."""
    begun = time.perf_counter()
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from flows.serving.answers import as_json
    from flows.serving.ask import ask, checked, notices
    from flows.serving.engine import newest_engine
    from flows.serving.question import Question
    from flows.serving.session import opened

    if where is not None and not where.strip():  # a variable of the shell that is not set
        raise InputError("where: the condition is empty; leave it out to search all passages")
    engine = newest_engine(Store(store_folder(store)), recipe, by)
    if engine.instead:
        terminal.print("by dense: a fusion was best on dev, but its first stage is a run file", style="dim")
    with terminal.status("Loading ...") as status, opened(engine) as run:
        asked = checked(run, Question(question, k, engine.how, where))
        loaded = time.perf_counter()
        status.update("Searching ...")
        (answers,) = ask(run, [asked])
        answered = time.perf_counter()
        lines = notices(run, asked)
    if isinstance(answers, Exception):
        raise InputError(str(answers)) from None
    loading, answering = 1000 * (loaded - begun), 1000 * (answered - loaded)
    if json:
        print_json({**as_json(engine, asked, answers, answering, lines), "loading_milliseconds": round(loading, 1)})
        return
    for line in lines:
        warn(line)
    show(engine, answers)
    terminal.print(f"loaded in {loading / 1000:.1f} s, answered in {answering:.0f} ms", style="dim", highlight=False)


def show(engine: "Engine", answers: "list[Answer]") -> None:
    from rich.padding import Padding
    from rich.text import Text

    from tasks.printable import printable

    how = ", ".join(filter(None, (engine.label(engine.how), engine.not_tuned(engine.how))))
    out.print(f"{engine.run.name}, {how}\n", style="dim", markup=False, highlight=False)
    if not answers:
        out.print("nothing found")
    for answer in answers:
        out.print(
            Text.assemble(
                (f"{answer.rank:>2}  ", "dim"),
                (answer.title or answer.doc_id, "bold"),
                (f"  {answer.doc_id}" if answer.title not in ("", answer.doc_id) else "", "dim"),
                (f"  {answer.score:#.4g}", "dim"),
            )
        )
        if answer.metadata:
            values = (f"{name} {value}" for name, value in answer.metadata.items() if value is not None)
            out.print(Padding(Text("  ".join(values), "dim"), (0, 0, 0, 4)))
        if answer.question:
            out.print(Padding(Text(answer.question, "italic"), (0, 0, 0, 4)))
        text = Text(printable(answer.excerpt))  # of the same length: the highlights are places in it
        for start, end in answer.highlights:
            text.stylize("bold yellow", start, end)
        out.print(Padding(text, (0, 0, 1, 4)))
