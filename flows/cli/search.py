"""`cocondenser search`: answers a question from a finished run."""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.options import Json, OfRecipe, StoreFolder, existing_store, out, print_json, terminal, warn
from pipeline.errors import InputError
from pipeline.notices import EXAMPLES

if TYPE_CHECKING:
    from flows.serving.answers import Answer
    from flows.serving.engine import Engine
    from flows.serving.reranker import RerankerSource

DOCUMENTS = 5
"""Answers by default."""
SearchBy = Annotated[
    Literal["dense", "fusion", "bm25"] | None,
    typer.Option(
        metavar="METHOD",
        help="Search method: dense, fusion or bm25 (default: fusion, unless the run's dev questions prove another "
        "one better).",
    ),
]

Rerank = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Score the first N passages again with a cross-encoder: the run's own, or --reranker's."
    ),
]
Reranker = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL", help="An existing cross-encoder for --rerank: a folder, or a name on the Hugging Face hub."
    ),
]


@contextmanager
def without_collections() -> Iterator[None]:
    """No garbage is collected, at the end of the process only DuckDB's: it takes a fifth to a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        if "duckdb" not in sys.modules:  # it reports objects that are not collected as leaks
            gc.freeze()
        gc.enable()


@without_collections()
def search(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="Question, in quotes.")],
    k: Annotated[
        int | None,
        typer.Option(
            "-k", metavar="N", help=f"Number of documents to show (default: {DOCUMENTS}, if there are as many)."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="SQL condition on the passages' metadata columns, such as \"source = 'numpy'\".",
        ),
    ] = None,
    recipe: OfRecipe = None,
    by: SearchBy = None,
    rerank: Rerank = None,
    reranker: Reranker = None,
    store: StoreFolder = None,
    json: Json = False,
) -> None:
    """Answer a question from a finished run."""
    started = time.perf_counter()
    from flows.serving.answers import answers_as_json
    from flows.serving.ask import ask, check_question, question_notices
    from flows.serving.engine import newest_engine
    from flows.serving.question import Question
    from flows.serving.session import open_session

    if where is not None and not where.strip():  # a variable of the shell may be empty
        raise InputError("where: the condition is empty; leave it out to search all passages")
    engine = newest_engine(existing_store(store), recipe, by)
    source = reranker_source(engine, rerank, reranker)
    if engine.dense_instead:
        terminal.print("by dense: the first stage of the fusion is a run file", style="dim")
    with terminal.status("Loading ...") as status, open_session(engine, reranker=source) as session:
        number = min(DOCUMENTS, session.passages.count) if k is None else k
        checked = check_question(session, Question(question, number, engine.by, where, rerank or 0))
        loaded = time.perf_counter()
        status.update("Searching ...")
        (answers,) = ask(session, [checked])
        answered = time.perf_counter()
        notices = question_notices(session, checked)
    if source is not None and source.warning:
        notices.append(source.warning)
    if isinstance(answers, Exception):
        raise InputError(str(answers)) from None
    loading, answering = 1000 * (loaded - started), 1000 * (answered - loaded)
    if json:
        result = answers_as_json(engine, checked, answers, answering, notices)
        print_json({**result, "loading_milliseconds": round(loading, 1)})
        return
    for line in notices:
        warn(line)
    how = f", the first {rerank:,} passages reranked by {source.name}" if source is not None else ""
    print_answers(engine, answers, how)
    terminal.print(f"loaded in {loading / 1000:.1f} s, answered in {answering:.0f} ms", style="dim", highlight=False)


def reranker_source(engine: "Engine", number: int | None, reranker: str | None) -> "RerankerSource | None":
    """The cross-encoder of --rerank and --reranker; None without them. Raises InputError before anything is loaded."""
    if number is None and reranker is None:
        return None
    from flows.runs.find_reranker import find_reranker

    return find_reranker(engine, number, reranker)


def print_answers(engine: "Engine", answers: "list[Answer]", reranked: str = "") -> None:
    """Prints each document with its score, metadata, a known question and an excerpt. `reranked`: what reranks."""
    from rich.padding import Padding
    from rich.text import Text

    from pipeline.evaluate.rows import FUSION
    from pipeline.evaluate.tables.short_tables import way_of
    from tasks.printable import printable

    how = f": {way_of(engine.metrics, FUSION)}" if engine.by == "fusion" else ""
    out.print(
        f"{engine.run.name}, {engine.label(engine.by)}{how}{reranked}\n",
        style="dim",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if not answers:
        out.print("nothing found")
    for answer in answers:
        out.print(
            Text.assemble(
                (f"{answer.rank:>2}  ", "dim"),
                (answer.title or answer.doc_id, "bold"),
                (f"  {answer.doc_id}" if answer.title not in ("", answer.doc_id) else "", "dim"),
                (f"  {answer.score:#.4g}{' reranked' * answer.reranked}", "dim"),
            )
        )
        # `folder` is empty for the files of the collection's own folder
        if values := [f"{name} {value}" for name, value in answer.metadata.items() if value not in (None, "")]:
            out.print(Padding(Text("  ".join(values), "dim"), (0, 0, 0, 4)))
        if answer.question:
            out.print(Padding(Text(answer.question, "italic"), (0, 0, 0, 4)))
        text = Text(printable(answer.excerpt))  # of the same length, to keep the positions of the highlights
        for start, end in answer.highlights:
            text.stylize("bold yellow", start, end)
        out.print(Padding(text, (0, 0, 0 if answer.almost_equal else 1, 4)))
        if answer.almost_equal:
            out.print(Padding(Text(almost_equal(answer), "dim"), (0, 0, 1, 4)))


def almost_equal(answer: "Answer") -> str:
    """A line such as `+2 almost equal: a.md#3, b.md#7`."""
    shown = answer.almost_equal[:EXAMPLES]
    more = ", ..." if answer.almost_equal_count > len(shown) else ""
    return f"+{answer.almost_equal_count:,} almost equal: {', '.join(shown)}{more}"
