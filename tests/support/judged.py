"""Judging without a search: invented rankings of two systems. Used by several test files."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from searched import write_collection

from flows.judging.comparison import Rules
from flows.judging.folder import JudgingFolder, Settings
from flows.judging.judging import Judging
from flows.judging.questions import WaitingQuestion
from flows.judging.record import PooledPassage, PooledQuestion
from flows.serving.line_log import LineLog

RULES = Rules("nDCG@10", 1, 10, 42)
PASSAGES = [(f"p{n}", f"d{n}", f"Title {n}", f"text of passage {n}") for n in range(6)]
Rankings = Mapping[str, Sequence[str]]
GOOD_BAD: Rankings = {"good": ["p0", "p1", "p2"], "bad": ["p3", "p2", "p0"]}


def settings(rankings: Rankings = GOOD_BAD, rules: Rules = RULES) -> Settings:
    return Settings("collection", {name: f"run {name}" for name in rankings}, 10, rules)


def pool_of(rankings: Rankings) -> Callable[[str, str], PooledQuestion]:
    """The same rankings for each question; the passages are shown in the order of their ids."""

    def pool(query_id: str, text: str) -> PooledQuestion:
        ids = sorted({one for ranked in rankings.values() for one in ranked})
        shown = [PooledPassage(passage_id=i, title=i, text=i, excerpt=i, highlights=[]) for i in ids]
        return PooledQuestion(
            query_id=query_id, text=text, passages=shown, rankings={n: [*r] for n, r in rankings.items()}
        )

    return pool


def start(
    running: ExitStack, root: Path, questions: Sequence[str], rankings: Rankings = GOOD_BAD, rules: Rules = RULES
) -> Judging:
    """A session in a folder, new or continued; `running` ends it."""
    folder, one = JudgingFolder(root), settings(rankings, rules)
    folder.check(one)
    running.enter_context(folder.held())
    collection = root.parent / "collection"
    if not collection.exists():
        write_collection(collection, PASSAGES, [], [])
    folder.start(one, collection)
    log = running.enter_context(LineLog(folder.record, alone=True))
    return Judging(folder, one, log, [WaitingQuestion(text) for text in questions], pool_of(rankings))


def judge(judging: Judging, grades: Mapping[str, int]) -> dict[str, Any]:
    """Grades the open question: the named passages, then 0 for the rest."""
    state = judging.state()
    query_id = state["question"]["query_id"]
    for passage_id, grade in grades.items():
        state = judging.grade(query_id, passage_id, grade)
    if (state["question"] or {}).get("query_id") == query_id:
        state = judging.grade(query_id, None, 0)
    return state
