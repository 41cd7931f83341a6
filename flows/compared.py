"""Which two runs of the store are compared, and what is shown of their questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.runs import Run, runs
from artifacts.store import Store
from flows.layers import hint
from flows.results import read_metrics
from pipeline.compare import Change
from pipeline.errors import InputError
from pipeline.stored import read_table

SHOWN = 12
"""Characters of an id."""


@dataclass(frozen=True)
class Side:
    """One of the two."""

    name: str
    """Recipe and id."""
    folder: Path
    """The artifact of stage `evaluate`."""
    collection: Path
    metrics: Mapping[str, Any]

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metrics["labels"]

    @property
    def best(self) -> str:
        """The system that was best on dev."""
        winner = self.metrics["winner_on_dev"]
        return str(self.metrics["dense"] if winner == "dense" else winner)


@dataclass(frozen=True)
class Question:
    """A question that changed, with the first passage of each: {title, text, relevant}."""

    query_id: str
    text: str
    a: float
    b: float
    a_first: dict[str, Any] | None
    b_first: dict[str, Any] | None


def run_id(run: Run) -> str | None:
    """What a run goes by: the start of its evaluation's digest. Runs with equal figures have the same."""
    return run.nodes["evaluate"].digest[:SHOWN] if "evaluate" in run.nodes else None


def side(store: Store, which: str) -> Side:
    """The newest run that `which` means. Raises InputError where none does, or its measures are gone."""
    measured = [run for run in runs(store) if "evaluate" in run.nodes]
    name = Path(which).resolve().parent.name if which.endswith("report.html") else which
    for run in measured:
        digests = [run.nodes[node].digest for node in ("evaluate", "report") if node in run.nodes]
        if run.name == name or (len(name) >= 4 and any(digest.startswith(name) for digest in digests)):
            metrics = read_metrics(run.nodes)
            assert metrics is not None
            return Side(f"{run.name} {run_id(run)}", run.nodes["evaluate"].path, run.nodes["ingest"].path, metrics)
    known = sorted({run.name for run in measured})
    raise InputError(f"{store.root}: no measured run {which!r}{hint(which, known)}; `cocondenser runs` lists them")


def split_of(a: Side, b: Side) -> str:
    """Test where both have it, else dev. Raises InputError where they share neither."""
    for split in ("test", "dev"):
        if all(split in one.metrics["splits"] for one in (a, b)):
            return split
    raise InputError(f"{a.name} and {b.name}: measured on no split in common")


def pairs_of(a: Side, b: Side) -> list[tuple[str, str]]:
    """Systems of the same name, and at the end what was best on dev in each."""
    split = split_of(a, b)
    systems_a, systems_b = (one.metrics["splits"][split]["systems"] for one in (a, b))
    best = (a.best, b.best)
    shared = [(name, name) for name in systems_a if name in systems_b and (name, name) != best]
    return [*shared, best]


def changed_questions(
    sides: tuple[Side, Side], pair: tuple[str, str], split: str, changes: Sequence[Change]
) -> list[Question]:
    """The changes with the question's text and the first passage of each side."""
    if not changes:
        return []
    query_ids = [change.query_id for change in changes]
    filters = [("split", "=", split), ("query_id", "in", query_ids)]
    rows = read_table(sides[0].collection / "queries.parquet", columns=["query_id", "text"], filters=filters)
    texts = dict(zip(rows["query_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    firsts = [first_answers(one, system, split, query_ids) for one, system in zip(sides, pair, strict=True)]
    return [
        Question(x.query_id, texts[x.query_id], x.a, x.b, firsts[0].get(x.query_id), firsts[1].get(x.query_id))
        for x in changes
    ]


def first_answers(one: Side, system: str, split: str, query_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """{question: its first passage}."""
    from pipeline.report.build import read_passages

    filters = [("split", "=", split), ("system", "=", system), ("rank", "=", 1), ("query_id", "in", [*query_ids])]
    answers = read_table(one.folder / "answers.parquet", filters=filters).to_pylist()
    passages = read_passages(one.collection, {answer["passage_id"] for answer in answers})
    least = one.metrics["config"]["relevance"]
    return {
        answer["query_id"]: {**passages[answer["passage_id"]], "relevant": (answer["relevance"] or 0) >= least}
        for answer in answers
    }
