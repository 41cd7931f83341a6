"""A run's answers to questions as people type them: how often a right page is first, and within five.

    python -m benchmarks.own_text QUESTIONS --recipe NAME --store STORE

QUESTIONS has a line for each question: its text, a tab, and the right pages: file names without their ending, with
blanks between them. benchmarks/postgresql_questions.tsv has 85 for PostgreSQL's documentation (Debian package
postgresql-doc-15); they were written before any result was seen. The newest run of the recipe answers by each of its
search methods, as `cocondenser search` does. p: the fusion against another method, paired by question, of the
reciprocal rank of the first right page (randomisation).
"""

from pathlib import Path, PurePath
from typing import Annotated

import numpy as np
import typer

from artifacts.store import Store
from flows.cli import main as cli
from flows.cli.options import out, print_json
from flows.graph.selection import store_folder
from flows.serving.ask import ask, check_question
from flows.serving.engine import By, newest_engine
from flows.serving.question import WAYS, Question, Session
from flows.serving.session import open_session
from pipeline.errors import InputError
from pipeline.evaluate.significance.paired import p_values
from pipeline.formatting import p_text, share_text

DEPTH = 10
PERMUTATIONS = 10_000


def main(
    questions: Annotated[Path, typer.Argument(help="A question, a tab and its right pages in each line.")],
    recipe: Annotated[str | None, typer.Option(help="Whose newest run answers.")] = None,
    store: Annotated[Path | None, typer.Option(help="Store of the run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the rank of each question.")] = False,
) -> None:
    """Prints a row for each search method."""
    judged = read_questions(questions)
    engine = newest_engine(Store(store_folder(store)), recipe)
    with open_session(engine, WAYS) as session:
        ranks = {by: ranks_of(session, judged, by) for by in session.ways}
    if as_json:
        texts = [text for text, _ in judged]
        print_json({by: dict(zip(texts, ranks_Q.tolist(), strict=True)) for by, ranks_Q in ranks.items()})
        return
    out.print("| method | first | within five | MRR@10 | fusion − method, MRR@10 | p |\n|---|---|---|---|---|---|")
    for by, ranks_Q in ranks.items():
        out.print(row(by, ranks_Q, ranks.get("fusion")), markup=False, highlight=False, soft_wrap=True)


def read_questions(path: Path) -> list[tuple[str, set[str]]]:
    """Returns (question, right pages) of each line."""
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        text, tab, pages = line.partition("\t")
        if not (tab and text.strip() and pages.split()):
            raise InputError(f"{path}:{number}: a question, a tab and its right pages are expected")
        found.append((text, {*pages.split()}))
    return found


def ranks_of(session: Session, judged: list[tuple[str, set[str]]], by: By) -> np.ndarray:
    """Returns the rank of the first right page of each question, [Q]; 0 if it is not among the first DEPTH."""
    asked = [check_question(session, Question(text, DEPTH, by)) for text, _ in judged]
    ranks = []
    for answers, (_, pages) in zip(ask(session, asked), judged, strict=True):
        if isinstance(answers, Exception):
            raise answers
        ranks.append(next((one.rank for one in answers if PurePath(one.doc_id).stem in pages), 0))
    return np.array(ranks)


def row(by: str, ranks_Q: np.ndarray, fusion_Q: np.ndarray | None) -> str:
    first, five = (np.mean((ranks_Q > 0) & (ranks_Q <= depth)) for depth in (1, 5))
    cells = [by, f"{first:.0%}", f"{five:.0%}", share_text(float(reciprocal(ranks_Q).mean()))]
    if fusion_Q is None or by == "fusion":
        return f"| {' | '.join([*cells, '–', '–'])} |"
    difference_Q = reciprocal(fusion_Q) - reciprocal(ranks_Q)
    (p,) = p_values(difference_Q[:, None], "randomisation", PERMUTATIONS, 42)
    return f"| {' | '.join([*cells, share_text(float(difference_Q.mean())), p_text(float(p))])} |"


def reciprocal(ranks_Q: np.ndarray) -> np.ndarray:
    return np.where(ranks_Q > 0, 1 / np.maximum(ranks_Q, 1), 0.0)


if __name__ == "__main__":
    cli.main(lambda: typer.run(main))
