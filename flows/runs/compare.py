"""Two runs of the store beside each other, and the questions that changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runs.evaluated import Measured
from pipeline.data.collection import unknown_question
from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.evaluate.compare import Change, Pair, Row, changes, compare, known_measure, questions_of, read_figures
from pipeline.evaluate.measures import HITS
from pipeline.evaluate.short_tables import NO_DEV
from pipeline.evaluate.significance import Test


@dataclass(frozen=True)
class Question:
    """One that changed, with the first passage of each side: {title, text, relevant}."""

    query_id: str
    text: str
    a: float
    b: float
    a_first: dict[str, Any] | None
    b_first: dict[str, Any] | None


@dataclass(frozen=True)
class Compared:
    """A system of a beside one of b."""

    a: str
    b: str
    a_label: str
    b_label: str
    """What tables call them."""
    best_on_dev: bool
    """Whether this is the row of what was best on dev in each."""
    figures: Row


@dataclass(frozen=True)
class Comparison:
    """What there is to say of two runs."""

    a: Measured
    b: Measured
    measure: str
    split: str
    questions: int
    systems: list[Compared]
    changes: list[Question]
    """Of the last of the systems."""
    warnings: list[str]


def comparison(a: Measured, b: Measured, measure: str, number: int, test: Test, samples: int, seed: int) -> Comparison:
    """b beside a, over the questions of test (else dev) that both have. `number`: of changes.

    Raises InputError where they have no split, question or system in common, and for a measure that is not known.
    """
    measure = known_measure(measure)
    split = split_of(a, b, measure)
    pairs, with_best = pairs_of(a, b, split, measure)
    of_a, of_b = read_figures(a.folder, split, measure), read_figures(b.folder, split, measure)
    asked_a, asked_b = questions_of(of_a), questions_of(of_b)
    shared = sorted(asked_a & asked_b)
    if not shared or not pairs:
        raise InputError(f"{a.name} and {b.name}: no {'system' if shared else 'question'} of {split} in common")
    rows = compare(of_a, of_b, shared, pairs, test, samples, seed)
    systems = [
        Compared(x, y, a.label(x), b.label(y), with_best and a.on_dev and b.on_dev and (x, y) == pairs[-1], row)
        for (x, y), row in zip(pairs, rows, strict=True)
    ]
    warnings = unlike(a, b)
    for one, names in zip((a, b), zip(*pairs, strict=True), strict=True):
        warnings += [f"{one.name}: {line}" for line in one.shallow(split, [measure], dict.fromkeys(names))]
    for one, asked in ((a, asked_a), (b, asked_b)):
        if len(asked) > len(shared):
            warnings.append(f"{one.name}: questions left out, which the other has not: {len(asked) - len(shared):,}")
    warnings += [f"{one.name}: {NO_DEV}, so nothing was chosen by them" for one in (a, b) if not one.on_dev]
    if not with_best and a.on_dev and b.on_dev:
        warnings.append(f"what was best on dev was not measured on {split} in both")
    questions: list[Question] = []
    try:
        changed = changes(of_a, of_b, shared, pairs[-1], number)
        questions = changed_questions((a, b), pairs[-1], split, changed, measure in HITS)
    except InputError as error:  # the figures stand without them
        warnings.append(f"the questions that changed cannot be shown: {error}")
    return Comparison(a, b, measure, split, len(shared), systems, questions, warnings)


def split_of(a: Measured, b: Measured, measure: str) -> str:
    """Test where both have the measure there, else dev. Raises InputError where they share neither."""

    def shared(measure: str) -> list[str]:
        return [split for split in ("test", "dev") if all(one.measured_by(split, measure) for one in (a, b))]

    if splits := shared(measure):
        return splits[0]
    other = next((other for other in ("hits@20", "RR@10") if shared(other)), None)
    hint = f"; by {other} they were (--measure {other})" if other else ""
    raise InputError(f"{a.name} and {b.name}: measured by {measure} on no split in common{hint}")


def pairs_of(a: Measured, b: Measured, split: str, measure: str) -> tuple[list[Pair], bool]:
    """Systems of the same name, and at the end the `best` of each, if that was measured on this split too.

    The second value: whether it was.
    """
    systems_a, systems_b = a.measured_by(split, measure), b.measured_by(split, measure)
    shared = [(name, name) for name in systems_a if name in systems_b]
    best = (a.best, b.best)
    if best[0] in systems_a and best[1] in systems_b:
        return [*(pair for pair in shared if pair != best), best], True
    return shared, False


def unlike(a: Measured, b: Measured) -> list[str]:
    """What makes differences of the two more than differences of systems."""
    said = []
    collections = {one.run.nodes["ingest"].digest if "ingest" in one.run.nodes else None for one in (a, b)}
    if len(collections) > 1:
        said.append("the two runs have different collections")
    least = [one.metrics["config"]["relevance"] for one in (a, b)]
    if least[0] != least[1]:
        said.append(f"relevant is what is judged {least[0]} or more in a, {least[1]} or more in b")
    return said


def changed_questions(
    sides: tuple[Measured, Measured], pair: Pair, split: str, changes: Sequence[Change], by_answers: bool
) -> list[Question]:
    """The changes with texts and first passages. Raises InputError where a collection is gone.

    `by_answers`: relevant is what holds an answer.
    """
    if not changes:
        return []
    query_ids = [change.query_id for change in changes]
    filters = [("split", "=", split), ("query_id", "in", query_ids)]
    columns = ["query_id", "text"]
    rows = read_table(collection(sides[0]) / "queries.parquet", columns=columns, filters=filters)
    texts = dict(zip(*(rows[name].to_pylist() for name in columns), strict=True))
    for query_id in query_ids:
        if query_id not in texts:
            raise unknown_question(sides[0].folder / "per_query.parquet", query_id)
    firsts = [first_answers(one, name, split, query_ids, by_answers) for one, name in zip(sides, pair, strict=True)]
    return [
        Question(x.query_id, texts[x.query_id], x.a, x.b, firsts[0].get(x.query_id), firsts[1].get(x.query_id))
        for x in changes
    ]


def collection(one: Measured) -> Path:
    if "ingest" not in one.run.nodes:
        raise InputError(f"the run of {one.run.name} names no collection")
    return one.run.nodes["ingest"].path


def first_answers(
    one: Measured, system: str, split: str, query_ids: Sequence[str], by_answers: bool
) -> dict[str, dict[str, Any]]:
    """{question: its first passage}."""
    from pipeline.report.examples import read_passages

    filters = [("split", "=", split), ("system", "=", system), ("rank", "=", 1), ("query_id", "in", [*query_ids])]
    answers = read_table(one.folder / "answers.parquet", filters=filters).to_pylist()
    passages = read_passages(collection(one), {answer["passage_id"] for answer in answers})
    least = one.metrics["config"]["relevance"]
    return {
        answer["query_id"]: {
            **passages[answer["passage_id"]],
            "relevant": bool(answer["holds_answer"]) if by_answers else (answer["relevance"] or 0) >= least,
        }
        for answer in answers
    }
