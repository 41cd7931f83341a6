"""Compares two runs of the store, and finds the questions that changed most."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runs.evaluated import EvaluatedRun
from pipeline.data.collection import unknown_question
from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.evaluate.compare import (
    Change,
    ComparedPair,
    Pair,
    changes,
    compare_systems,
    known_measure,
    questions_of,
    read_figures,
)
from pipeline.evaluate.measures import HITS
from pipeline.evaluate.significance.paired import Test
from pipeline.evaluate.tables.short_tables import NOTHING_CHOSEN


@dataclass(frozen=True)
class ChangedQuestion:
    """A question with the first passage of each run: {title, text, relevant}."""

    query_id: str
    text: str
    a: float
    b: float
    a_first: dict[str, Any] | None
    b_first: dict[str, Any] | None


@dataclass(frozen=True)
class SystemPair:
    """A system of run a and one of run b."""

    a: str
    b: str
    a_label: str
    b_label: str
    """Names of the systems in tables."""
    answering: bool
    """Whether these are the systems by which both runs answer questions."""
    figures: ComparedPair


@dataclass(frozen=True)
class Comparison:
    a: EvaluatedRun
    b: EvaluatedRun
    measure: str
    split: str
    questions: int
    systems: list[SystemPair]
    changes: list[ChangedQuestion]
    """Questions that changed most between the last pair of systems."""
    warnings: list[str]


def compare_runs(
    a: EvaluatedRun, b: EvaluatedRun, measure: str, number: int, test: Test, samples: int, seed: int
) -> Comparison:
    """Compares the runs on the questions of test (otherwise dev) that both have. `number`: of changed questions.

    Raises InputError if the runs have no split, question or system in common, and for an unknown measure.
    """
    measure = known_measure(measure)
    split = shared_split(a, b, measure)
    pairs, with_answering = system_pairs(a, b, split, measure)
    figures_a, figures_b = read_figures(a.folder, split, measure), read_figures(b.folder, split, measure)
    questions_a, questions_b = questions_of(figures_a), questions_of(figures_b)
    shared = sorted(questions_a & questions_b)
    if not shared or not pairs:
        raise InputError(f"{a.name} and {b.name}: no {'system' if shared else 'question'} of {split} in common")
    rows = compare_systems(figures_a, figures_b, shared, pairs, test, samples, seed)
    systems = [
        SystemPair(x, y, a.label(x), b.label(y), with_answering and (x, y) == pairs[-1], row)
        for (x, y), row in zip(pairs, rows, strict=True)
    ]
    warnings = different_settings(a, b)
    for run, names in zip((a, b), zip(*pairs, strict=True), strict=True):
        warnings += [f"{run.name}: {line}" for line in run.shallow(split, [measure], dict.fromkeys(names))]
    for run, questions in ((a, questions_a), (b, questions_b)):
        if len(questions) > len(shared):
            count = len(questions) - len(shared)
            warnings.append(f"{run.name}: questions that the other run does not have, left out: {count:,}")
    warnings += [f"{run.name}: {NOTHING_CHOSEN}" for run in (a, b) if not run.on_dev]
    if not with_answering:
        warnings.append(f"the systems that answer questions were not both measured on {split}")
    changed: list[ChangedQuestion] = []
    try:
        most = changes(figures_a, figures_b, shared, pairs[-1], number)
        changed = changed_questions((a, b), pairs[-1], split, most, measure in HITS)
    except InputError as error:  # the comparison is complete without them
        warnings.append(f"the questions that changed cannot be shown: {error}")
    return Comparison(a, b, measure, split, len(shared), systems, changed, warnings)


def shared_split(a: EvaluatedRun, b: EvaluatedRun, measure: str) -> str:
    """Test if both runs have the measure there, otherwise dev. Raises InputError if they share neither."""

    def shared(measure: str) -> list[str]:
        return [split for split in ("test", "dev") if all(run.measured_by(split, measure) for run in (a, b))]

    if splits := shared(measure):
        return splits[0]
    other = next((other for other in ("hits@20", "RR@10") if shared(other)), None)
    advice = f"; use --measure {other}" if other else ""
    raise InputError(f"{a.name} and {b.name}: no split in common has {measure}{advice}")


def system_pairs(a: EvaluatedRun, b: EvaluatedRun, split: str, measure: str) -> tuple[list[Pair], bool]:
    """(pairs of systems with the same name, then the pair that answers questions; whether that last pair is included).

    The last pair needs figures on this split.
    """
    systems_a, systems_b = a.measured_by(split, measure), b.measured_by(split, measure)
    shared = [(name, name) for name in systems_a if name in systems_b]
    answering = (a.answering, b.answering)
    if answering[0] in systems_a and answering[1] in systems_b:
        return [*(pair for pair in shared if pair != answering), answering], True
    return shared, False


def different_settings(a: EvaluatedRun, b: EvaluatedRun) -> list[str]:
    """Warnings of other differences of the runs, which also change the figures."""
    warnings = []
    collections = {run.run.nodes["ingest"].digest if "ingest" in run.run.nodes else None for run in (a, b)}
    if len(collections) > 1:
        warnings.append("the two runs have different collections")
    lowest_a, lowest_b = (run.metrics["config"]["relevance"] for run in (a, b))
    if lowest_a != lowest_b:
        warnings.append(f"the lowest relevant grade is {lowest_a} in a, {lowest_b} in b")
    return warnings


def changed_questions(
    runs: tuple[EvaluatedRun, EvaluatedRun], pair: Pair, split: str, changes: Sequence[Change], by_answers: bool
) -> list[ChangedQuestion]:
    """The changes with texts and first passages. Raises InputError if a collection is missing.

    `by_answers`: a passage is relevant if it contains an answer.
    """
    if not changes:
        return []
    query_ids = [change.query_id for change in changes]
    filters = [("split", "=", split), ("query_id", "in", query_ids)]
    columns = ["query_id", "text"]
    rows = read_table(collection_folder(runs[0]) / "queries.parquet", columns=columns, filters=filters)
    texts = dict(zip(*(rows[name].to_pylist() for name in columns), strict=True))
    for query_id in query_ids:
        if query_id not in texts:
            raise unknown_question(runs[0].folder / "per_query.parquet", query_id)
    firsts = [first_answers(run, name, split, query_ids, by_answers) for run, name in zip(runs, pair, strict=True)]
    return [
        ChangedQuestion(x.query_id, texts[x.query_id], x.a, x.b, firsts[0].get(x.query_id), firsts[1].get(x.query_id))
        for x in changes
    ]


def collection_folder(evaluated: EvaluatedRun) -> Path:
    if "ingest" not in evaluated.run.nodes:
        raise InputError(f"the run of {evaluated.run.name} has no collection")
    return evaluated.run.nodes["ingest"].path


def first_answers(
    evaluated: EvaluatedRun, system: str, split: str, query_ids: Sequence[str], by_answers: bool
) -> dict[str, dict[str, Any]]:
    """{query id: its first passage}."""
    from pipeline.report.examples import read_passages

    filters = [("split", "=", split), ("system", "=", system), ("rank", "=", 1), ("query_id", "in", [*query_ids])]
    answers = read_table(evaluated.folder / "answers.parquet", filters=filters).to_pylist()
    passages = read_passages(collection_folder(evaluated), {answer["passage_id"] for answer in answers})
    lowest = evaluated.metrics["config"]["relevance"]
    return {
        answer["query_id"]: {
            **passages[answer["passage_id"]],
            "relevant": bool(answer["holds_answer"]) if by_answers else (answer["relevance"] or 0) >= lowest,
        }
        for answer in answers
    }
