"""`cocondenser search`: a question asked of a finished run."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from flows.cli_options import Json, StoreFolder, out, print_json, terminal


def search(
    question: Annotated[str, typer.Argument(help="A question, in quotes.")],
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Documents shown.")] = 5,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Of this recipe; else of the newest run.")
    ] = None,
    by: Annotated[
        Literal["dense", "fusion", "bm25"] | None, typer.Option(help="Ask this; else what was best on dev questions.")
    ] = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Answer a question from the newest run, by what was best on its dev questions: dense, or dense and BM25."""
    from artifacts.store import Store
    from flows.search import excerpt, newest_engine, pattern, words_of
    from flows.search import search as find
    from flows.selection import store_folder

    engine = newest_engine(Store(store_folder(store)), recipe, by)
    if engine.instead:
        terminal.print("by dense: a fusion was best on dev, but its first stage is a run file", style="dim")
    with terminal.status("Loading ..."):
        answers = find(engine, question, k)
    if as_json:
        print_json({"recipe": engine.run.name, "by": engine.how, "answers": [asdict(answer) for answer in answers]})
        return
    from rich.padding import Padding
    from rich.text import Text

    words = words_of(question)
    first = engine.metrics["labels"]["bm25"]
    asked = {"fusion": f"dense + {first}", "bm25": first}.get(engine.how, engine.how)
    out.print(f"[dim]{engine.run.name}, {asked}[/]\n", highlight=False)
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
        if answer.question:
            out.print(Padding(Text(answer.question, "italic"), (0, 0, 0, 4)))
        text = Text(excerpt(answer.text, words))
        if words:
            text.highlight_regex(pattern(words), "bold yellow")
        out.print(Padding(text, (0, 0, 1, 4)))
