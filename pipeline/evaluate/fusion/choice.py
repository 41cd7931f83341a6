"""Decides how runs are fused: z-normalised scores with equal weights, unless the user names another way, or dev
questions prove that it is better.

Legend of suffixes: R rows (of the union of some runs), G rows of what is judged, Q questions, C choices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.data.runs import Run
from pipeline.evaluate.fusion.fuse import Choice, Method, union
from pipeline.evaluate.reciprocal_rank import is_relevant, reciprocal_ranks
from pipeline.evaluate.significance.paired import FEWEST, SURE, Test, proven_better
from pipeline.evaluate.tables.short_tables import NO_DEV
from pipeline.formatting import counted, p_text

if TYPE_CHECKING:
    from pipeline.evaluate.config import EvaluateConfig

REQUESTED = "as requested"
"""Why a fusion has its only method and weight."""


@dataclass(frozen=True)
class Ways:
    """Ways to fuse that the user allows, and the test that decides between them."""

    methods: Sequence[Method]
    weights: Sequence[float]
    """Of the first run. A single one is the user's own choice."""
    k: float
    """Of reciprocal ranks."""
    test: Test
    permutations: int
    seed: int
    """See `significance.p_values`."""


def ways_of(config: "EvaluateConfig") -> Ways:
    """Returns the ways of a recipe."""
    methods, weights = tuple(config.fusion_methods), tuple(config.fusion_weights)
    return Ways(methods, weights, config.reciprocal_k, config.test, config.permutations, config.seed)


@dataclass(frozen=True)
class Judged:
    """Judgements of dev questions."""

    relevant: tuple[np.ndarray, np.ndarray]
    """The positive ones: questions and what is relevant to them, numbered as in the runs; equal lengths."""
    questions: int
    """Number of questions with a relevant passage, also of those in no run."""


@dataclass(frozen=True)
class FusionChoice:
    """How a fusion combines its runs, and why."""

    choice: Choice
    chosen_on_dev: bool
    """Whether dev questions proved it better than the default."""
    why: str
    """`default: 8 dev questions, fewer than 50`."""


def default_choice(runs: int, ways: Ways) -> Choice:
    """Returns how to fuse `runs` runs by default: z-normalised scores with equal weights, or the only method or weight
    that the user allows.

    On ten collections nothing else was better than this sum, while reciprocal ranks were worse by .014 nDCG@10 on
    average (docs/evaluation.md).
    """
    method: Method = ways.methods[0] if len(ways.methods) == 1 else "z_score_sum"
    return Choice(method, ways.weights[0] if len(ways.weights) == 1 else 1 / runs)


def other_choices(runs: int, ways: Ways) -> list[Choice]:
    """Returns the ways to fuse `runs` runs that the user allows besides the default."""
    allowed = (Choice(method, weight) for method in ways.methods for weight in ways.weights)
    return [choice for choice in allowed if choice != default_choice(runs, ways)]


def without_dev(runs: int, ways: Ways, without: str = NO_DEV) -> FusionChoice:
    """Returns the default for `runs` runs. `without`: why dev cannot choose."""
    why = f"default: {without}" if other_choices(runs, ways) else REQUESTED
    return FusionChoice(default_choice(runs, ways), False, why)


def choose(runs: Sequence[Run], ways: Ways, judged: Judged | None, without: str = NO_DEV) -> FusionChoice:
    """Returns the default, or what dev questions prove better: at least FEWEST of them, and RR@10 above the default's
    with p < SURE, paired by question and corrected for the number of other ways by Holm's method. Of several such ways
    the one with the best mean is used, and of equal ones the first.

    `judged`: None if dev cannot choose; `without` then says why.
    """
    default, others = default_choice(len(runs), ways), other_choices(len(runs), ways)
    if judged is None or not others:
        return without_dev(len(runs), ways, without)
    on = counted(judged.questions, "dev questions")
    if judged.questions < FEWEST:
        return FusionChoice(default, False, f"default: {on}, fewer than {FEWEST}")
    ranks_QC = reciprocal_ranks_of(runs, [default, *others], ways.k, judged)
    best = proven_better(ranks_QC[:, 1:] - ranks_QC[:, :1], ways.test, ways.permutations, ways.seed)
    if best is None:
        return FusionChoice(default, False, f"default: no other way is better on {on} with p < {f'{SURE:g}'[1:]}")
    p = p_text(best.p)
    why = f"better than the default on {on}, p {p if p.startswith('<') else f'= {p}'}"
    return FusionChoice(others[best.column], True, why)


def reciprocal_ranks_of(runs: Sequence[Run], choices: Sequence[Choice], k: float, judged: Judged) -> np.ndarray:
    """Returns RR@10 of each question in the runs or the judgements, [Q, C]; 0 without a relevant passage."""
    numbers = [judged.relevant[0], *(run.question_R for run in runs)]
    questions = 1 + max(int(number_R.max(initial=-1)) for number_R in numbers)
    ranks_QC = np.zeros((questions, len(choices)))
    for method in dict.fromkeys(choice.method for choice in choices):
        joined = union(runs, method, k)
        relevant_R = is_relevant(joined.question_R, joined.passage_R, judged.relevant)
        for column, choice in enumerate(choices):
            if choice.method == method and len(relevant_R):
                score_R = joined.score_R(choice.weight)
                ranks_QC[:, column] = reciprocal_ranks(
                    joined.question_R, joined.passage_R, score_R, relevant_R, questions
                )
    return ranks_QC
