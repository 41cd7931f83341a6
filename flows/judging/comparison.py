"""The systems compared by the judgements: figures, intervals, tests, and whether the plan has decided."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from flows.judging.record import Judgements
from pipeline.errors import InputError
from pipeline.evaluate.compare import cutoff, known_measure
from pipeline.evaluate.measures import HITS, MEASURES, measure
from pipeline.evaluate.significance.paired import tabulated
from pipeline.evaluate.significance.sequential import LOOKS, Look, look_counts, looks

SAMPLES = 10_000
"""Resamples of the bootstrap, and of the randomisation test."""


@dataclass(frozen=True)
class Rules:
    """How judgements compare systems. Chosen before the first judgement, because a choice by the results would not be
    a test."""

    measure: str
    relevance: int
    """Lowest grade that counts as relevant, except for nDCG."""
    planned: int
    """Number of questions of the plan (pipeline/evaluate/significance/sequential.py)."""
    seed: int


@dataclass(frozen=True)
class Comparison:
    """The systems, over the questions that are completely judged and have a relevant passage."""

    rules: Rules
    systems: list[str]
    questions: int
    questions_without_relevant: int
    skipped: int
    figures: Mapping[str, Any]
    """{systems: {system: {measure: {mean, low, high}}}, differences: {`a - b`: {measure: {mean, low, high, p, p_holm,
    wins, ties, losses}}}}, as in an evaluation; empty without a question. Not corrected for the looks."""
    looks: list[Look]
    minutes: float
    """Time of the judge, without pauses."""

    @property
    def is_decided(self) -> bool:
        return bool(self.looks) and self.looks[-1].is_decided

    def as_json(self) -> dict[str, Any]:
        found = {
            key: value for key, value in asdict(self).items() if key not in ("rules", "systems", "figures", "looks")
        }
        all_looks = [{**asdict(look), "decided": look.is_decided, "needed": look.needed} for look in self.looks]
        return {
            **asdict(self.rules),
            **found,
            "minutes": round(self.minutes, 1),
            "decided": self.is_decided,
            **self.figures,
            "looks": all_looks,
        }


def check_measure(name: str, depth: int) -> str:
    """Returns the measure's name in tables. Raises InputError for one that looks below the first `depth` passages, or
    that needs answers."""
    known = known_measure(name)
    fitting = [one for one in MEASURES if fits(one, depth)]
    if known in fitting:
        return known
    advice = f"use {' or '.join(fitting)}, or a larger --depth" if fitting else "use a larger --depth"
    if known in HITS:
        raise InputError(f"--measure {name}: needs answers, and a judge gives grades; {advice}")
    raise InputError(f"--measure {name}: looks below the first {depth} passages, which are judged; {advice}")


def fits(measure_name: str, depth: int) -> bool:
    """Whether a measure looks at the first `depth` passages at most."""
    last = cutoff(measure_name)
    return last is not None and last <= depth


def counted_questions(judgements: Judgements, relevance: int) -> list[str]:
    """Returns the questions that count: completely judged, with a relevant passage, in the order of asking."""
    grades = judgements.grades
    return [one for one in judgements.complete if max(grades[one].values(), default=0) >= relevance]


def compare(rules: Rules, systems: list[str], judgements: Judgements, minutes: float) -> Comparison:
    query_ids = counted_questions(judgements, rules.relevance)
    values = {name: figures(rules, name, query_ids, judgements) for name in systems}
    pairs = [*combinations(systems, 2)]
    table: Mapping[str, Any] = {"systems": {}, "differences": {}}
    if query_ids:
        table = tabulated(
            {name: value_Q[:, None] for name, value_Q in values.items()},
            [rules.measure],
            pairs,
            "randomisation",
            permutations=SAMPLES,
            samples=SAMPLES,
            seed=rules.seed,
        )
    return Comparison(
        rules=rules,
        systems=systems,
        questions=len(query_ids),
        questions_without_relevant=len(judgements.complete) - len(query_ids),
        skipped=len(judgements.skipped),
        figures=table,
        looks=looks(values, rules.planned, samples=SAMPLES, seed=rules.seed),
        minutes=minutes,
    )


def figures(rules: Rules, system: str, query_ids: list[str], judgements: Judgements) -> np.ndarray:
    """Returns the system's figure of each question, [Q]."""
    ranks = {
        query_id: {one: -rank for rank, one in enumerate(judgements.questions[query_id].rankings[system], 1)}
        for query_id in query_ids
    }
    qrels = {query_id: judgements.grades[query_id] for query_id in query_ids}
    run = {query_id: ranked for query_id, ranked in ranks.items() if ranked}
    return measure(run, query_ids, qrels, rules.relevance)[:, MEASURES.index(rules.measure)]


def outcome(comparison: Comparison, labels: Mapping[str, str]) -> str:
    """Returns the outcome of the plan in one line."""
    planned, done = comparison.rules.planned, comparison.questions
    if not comparison.looks:
        first = look_counts(planned)[0]
        return f"No test yet: the first one is after {first} questions, and {done} count until now."
    last = comparison.looks[-1]
    if last.is_decided:
        others = " and ".join(labels[one.other] for one in last.others)
        return f"{labels[last.best]} is better than {others}: significant after {last.questions} questions."
    more = look_counts(planned)[min(len(comparison.looks), LOOKS - 1)]
    if last.needed is None:
        advice = "the systems do not differ so far"
    elif last.questions == planned:
        advice = f"a plan of about {last.needed:,} questions may show one (power 80 %)"
    else:
        advice = f"about {max(last.needed, more) - done:,} more may show one (power 80 %)"
    return f"After {last.questions} of {planned} planned questions no significant difference; {advice}."
