"""Whether an update changes the figures on test questions."""

from dataclasses import asdict, dataclass
from typing import Any

from artifacts.runs import RunRecord
from flows.graph.run_schema import read_metrics
from flows.runs.compare import compare_runs
from flows.runs.evaluated import EvaluatedRun, read_evaluated
from flows.serving.engine import Engine
from flows.updates.judged import JudgedQuestions, answerable, measured
from pipeline.errors import InputError
from pipeline.evaluate.compare import ComparedPair, compare_systems
from pipeline.evaluate.significance.paired import SURE
from pipeline.formatting import counted, p_text, share_text

SAMPLES = 10_000
"""Resamples of the bootstrap, and of the randomisation test."""
SEED = 42
ANSWERING = "answering"
"""Name of the search method that answers, which may change with an update."""
FELL = "FiguresFell"
"""Name of the state of an update after which figures are lower. Prefect's event is `prefect.flow-run.FiguresFell`, to
which an automation reacts (flows/deploy/automations.py)."""


@dataclass(frozen=True)
class BeforeAndAfter:
    """The search method that answers, on the same questions before and after an update."""

    measure: str
    questions: int
    of: str
    """A split of the run, or the folder of the questions."""
    before: str
    """The run that is compared: the time of its start."""
    difference: ComparedPair

    @property
    def fell(self) -> bool:
        return self.difference.mean < 0 and self.difference.p < SURE

    @property
    def line(self) -> str:
        pair = self.difference
        figures = f"{share_text(pair.a)} → {share_text(pair.b)} (p {p_text(pair.p)})"
        of = f"{counted(self.questions, 'questions')} of {self.of}"
        return f"{self.measure} on {of}, since {self.before[:10]}: {figures}{', lower' if self.fell else ''}"

    def as_json(self) -> dict[str, Any]:
        found = {key: value for key, value in asdict(self).items() if key != "difference"}
        # One pair of systems is compared, so that there is nothing to correct.
        pair = {key: value for key, value in asdict(self.difference).items() if key != "p_holm"}
        return {**found, **pair, "fell": self.fell}


def before_and_after(before: Engine, update: RunRecord, measure: str, judged: JudgedQuestions | None) -> BeforeAndAfter:
    """Compares a run with its update, each by the search method that answers.

    `judged`: questions instead of the runs' own. Raises InputError if there is no question in common, and JavaFailed.
    """
    after = Engine(update, read_metrics(update.nodes) or {})
    if judged is not None:
        return _on_judged(judged, before, after, measure)
    both = compare_runs(_evaluated(before), _evaluated(after), measure, 0, "randomisation", SAMPLES, SEED)
    answering = next((pair for pair in both.systems if pair.answering), None)
    if answering is None:
        raise InputError(*both.warnings[-1:])
    return BeforeAndAfter(measure, both.questions, both.split, before.run.created, answering.figures)


def _evaluated(engine: Engine) -> EvaluatedRun:
    found = read_evaluated(engine.run)
    assert found is not None
    return found


def _on_judged(judged: JudgedQuestions, before: Engine, after: Engine, measure: str) -> BeforeAndAfter:
    relevance = int(after.metrics["config"]["relevance"])
    query_ids = answerable(judged, [before, after], relevance)

    def figures(engine: Engine) -> dict[str, dict[str, float]]:
        values_Q = measured(judged, engine, query_ids, measure, relevance)
        return {ANSWERING: dict(zip(query_ids, values_Q.tolist(), strict=True))}

    pairs = [(ANSWERING, ANSWERING)]
    (pair,) = compare_systems(figures(before), figures(after), query_ids, pairs, "randomisation", SAMPLES, SEED)
    return BeforeAndAfter(measure, len(query_ids), str(judged.folder), before.run.created, pair)
