"""Measures one split: by qrels, by answers, and neighbours by nb-recall."""

from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.documents import Documents
from pipeline.data.qrels import Qrels
from pipeline.data.runs import Run
from pipeline.evaluate import answer_qrels, per_query
from pipeline.evaluate.answer_qrels import CheckedPairs, find_answers
from pipeline.evaluate.document_ranking import (
    fewest_documents,
    fuse_documents,
    numbered,
    of_documents,
    with_first_passages,
)
from pipeline.evaluate.fusion.choice import FusionChoice, Judged, choose, ways_of
from pipeline.evaluate.fusion.fuse import fuse
from pipeline.evaluate.measures import HIT_PROVIDERS, HITS, MEASURES, PROVIDERS, Providers, as_ranks, measure, nb_recall
from pipeline.evaluate.questions import SplitQuestions, select_questions
from pipeline.evaluate.rows import compared, is_dense
from pipeline.evaluate.shallow import cut_at
from pipeline.evaluate.significance.paired import tabulated
from pipeline.evaluate.tables.short_tables import NO_DEV
from pipeline.runtime.work import Work, counter

if TYPE_CHECKING:
    from pipeline.evaluate.config import EvaluateConfig

Values = dict[str, np.ndarray]
"""{system: figures, [questions, measures]}."""


@dataclass(frozen=True)
class SplitFigures:
    """The part of metrics.json for a split, and its rows of the artifact's tables."""

    figures: dict[str, Any]
    per_query: list[pa.Table]
    answers: list[pa.Table]
    answer_qrels: pa.Table | None
    """None if no question has answers."""


@dataclass(frozen=True)
class Common:
    """What all splits of an evaluation share."""

    config: "EvaluateConfig"
    collection: Path
    passage_ids: pa.Array
    """All ids of the collection, in its order."""
    documents: Documents
    """What is judged: the passages, or the documents that they were cut from."""
    joined: Mapping[str, Sequence[str]]
    """{fusion: its runs}."""
    has_dev: bool
    """Whether dev has questions that can be measured."""
    depths: Mapping[str, int]
    """{run: requested length of its lists} of runs whose lists end if nothing more is found."""
    work: Work

    @property
    def without_passages(self) -> set[str]:
        """Rows whose lists name documents that were cut, not passages: other systems, and fusions with them."""
        others = {*self.config.systems} if self.documents.are_cut else set()
        return others | {name for name, members in self.joined.items() if others & {*members}}


def split_figures(
    common: Common,
    split: str,
    questions: SplitQuestions,
    own_runs: Mapping[str, Run],
    others: Mapping[str, Run],
    choices: MutableMapping[str, FusionChoice],
) -> SplitFigures:
    """Returns measures of the flow's own runs, `own_runs`, of `others`, and of their fusions.

    `others` rank documents: their rows are numbers of documents. Chooses fusions that are missing in `choices`, and
    adds them.
    """
    config, passage_ids, progress = common.config, common.passage_ids, common.work.progress
    documents, unread = common.documents, common.without_passages
    query_ids = questions.query_ids.to_pylist()
    answers = [questions.answers.get(query_id, ()) for query_id in query_ids]
    lists = {**own_runs, **{name: with_first_passages(run, documents) for name, run in others.items()}}
    runs = {name: of_documents(run, documents, config.best_three_share) for name, run in lists.items()}
    found = [run for name, run in runs.items() if name not in unread]
    checked = find_answers(common.collection, found, answers, answer_qrels.NOTHING, progress)
    joined = fused(common, split, questions, lists, checked, choices)
    lists |= joined
    runs |= joined
    found = [runs[name] for name in joined if name not in unread]
    checked = find_answers(common.collection, found, answers, checked, progress)
    hits = checked.qrels(questions.query_ids, passage_ids)
    ranked = {name: numbered(run, documents) for name, run in runs.items()}
    kinds = bool(questions.qrels) + bool(questions.answers)
    tick = partial(counter(progress, len(runs) * kinds, "runs"), 1)
    judged, without = run_figures(
        ranked, own_runs, questions, questions.qrels, config.relevance, PROVIDERS, documents.ids, tick
    )
    dense = {name: ranked[name] for name in own_runs if is_dense(name)}
    cut = cuts(common, lists, runs)
    figures: dict[str, Any] = {
        "questions": len(questions.qrels),
        "questions_without_relevant": questions.without_relevant,
        "questions_without_results": without,
        "cut_at": cut,
        **({"fewest_documents": fewest_documents(lists, runs, cut)} if documents.are_cut else {}),
        **_table(common, judged, MEASURES),
        "neighbours": nb_recall(dense, len(query_ids), config.nb_recall),
    }
    holding = {query_id: hits.get(query_id, {}) for query_id in questions.answers}
    read = {name: run for name, run in runs.items() if name not in unread}
    hit, without = run_figures(read, own_runs, questions, holding, 1, HIT_PROVIDERS, passage_ids, tick)
    if hit:
        counts = {"questions": len(holding), "questions_without_results": without}
        figures["answers"] = {**counts, **_table(common, hit, HITS)}
    figures_Q = {name: dict(zip(questions.qrels, values, strict=True)) for name, values in judged.items()}
    hits_Q = {name: dict(zip(holding, values, strict=True)) for name, values in hit.items()}
    return SplitFigures(
        figures,
        [per_query.measure_rows(split, n, query_ids, figures_Q.get(n, {}), hits_Q.get(n, {})) for n in runs],
        [
            per_query.answer_rows(
                split, n, run, questions, passage_ids, documents, hits if n in read else None, config.answers
            )
            for n, run in runs.items()
        ],
        checked.table(split, questions.query_ids, passage_ids) if questions.answers else None,
    )


def fused(
    common: Common,
    split: str,
    questions: SplitQuestions,
    runs: Mapping[str, Run],
    checked: CheckedPairs,
    choices: MutableMapping[str, FusionChoice],
) -> dict[str, Run]:
    """Returns the fusions that have all of their runs, as lists of documents if these are cut. `runs`: of passages."""
    config, documents = common.config, common.documents
    fusions: dict[str, Run] = {}
    for name, members in common.joined.items():
        if runs.keys() >= {*members}:
            parts = [runs[member] for member in members]
            if name not in choices:
                choices[name] = choose_fusion(common, split, parts, questions, checked)
            choice = choices[name].choice
            if documents.are_cut:
                numbers = [documents.of_P[part.passage_R] for part in parts]
                fusions[name] = fuse_documents(parts, numbers, config.best_three_share, choice, config.reciprocal_k)
            else:
                fusions[name] = fuse(parts, choice, config.reciprocal_k)
    return fusions


def run_figures(
    runs: Mapping[str, Run],
    own_runs: Container[str],
    questions: SplitQuestions,
    qrels: Qrels,
    relevance: int,
    providers: Providers,
    passage_ids: pa.Array,
    tick: Callable[[], None],
) -> tuple[Values, dict[str, int]]:
    """Returns (figures of each run over the questions of `qrels`, number of these without results).

    A system without a row of these questions is left out, unless it is one of the flow's own, `own_runs`.
    """
    values: Values = {}
    without: dict[str, int] = {}
    query_ids = pa.array([*qrels], pa.string())
    for name, run in runs.items() if qrels else ():
        part = select_questions(run, questions.query_ids, query_ids)
        if name in own_runs or len(part.question_R):
            ranks = as_ranks(top(part, providers), query_ids, passage_ids)
            values[name] = measure(ranks, [*qrels], qrels, relevance, providers)
            without[name] = len(qrels) - len(ranks)
        tick()
    return values, without


def cuts(common: Common, lists: Mapping[str, Run], runs: Mapping[str, Run]) -> dict[str, int]:
    """Returns {run: length at which its lists were cut} of runs with cut lists, in documents if these are cut.

    `lists`: of passages; `runs`: the same, of documents.
    """
    found = {}
    for name, run in lists.items():
        is_of_documents = name in common.without_passages or name in common.joined
        total = len(common.documents.ids if is_of_documents else common.passage_ids)
        if cut_at(int(run.rank_R.max(initial=0)), total, common.depths.get(name)) is not None:
            found[name] = int(runs[name].rank_R.max())
    return found


def top(run: Run, providers: Providers) -> Run:
    """Returns the ranks that the measures use."""
    depths = [depth for _, depth, _ in providers if depth is not None]
    if len(depths) < len(providers):
        return run
    return run.rows(run.rank_R <= max(depths))


def _table(common: Common, values: Values, measures: Sequence[str]) -> dict[str, Any]:
    """Returns systems and differences; empty if nothing was measured."""
    if not values:
        return {"systems": {}, "differences": {}}
    config = common.config
    pairs = [pair for pair in compared([*values], [*config.systems], common.joined) if values.keys() >= {*pair}]
    samples = {"permutations": config.permutations, "samples": config.bootstrap_samples, "seed": config.seed}
    return tabulated(values, measures, pairs, config.test, **samples)


def choose_fusion(
    common: Common, split: str, runs: Sequence[Run], questions: SplitQuestions, checked: CheckedPairs
) -> FusionChoice:
    """Returns how to fuse the runs: `fusion_choice.choose` by qrels of dev, or by answers if there are none (passages
    below the first 100 of each run then count as no hit). Test never chooses."""
    config, documents = common.config, common.documents
    if split != "dev":
        without = f"one of its runs has {NO_DEV}" if common.has_dev else NO_DEV
        return choose(runs, ways_of(config), None, without)
    relevant = checked.question_P[checked.holds_P], documents.of_P[checked.passage_P[checked.holds_P]]
    if questions.qrels:
        pairs = [(q, p) for q, grades in questions.qrels.items() for p, g in grades.items() if g >= config.relevance]
        passage_R = pc.index_in(pa.array([p for _, p in pairs], pa.string()), value_set=documents.ids)
        question_R = pc.index_in(pa.array([q for q, _ in pairs], pa.string()), value_set=questions.query_ids)
        known_R = passage_R.is_valid()
        relevant = question_R.filter(known_R).to_numpy().astype(np.int64), passage_R.drop_null().to_numpy()
    ranked = [numbered(of_documents(run, documents, config.best_three_share), documents) for run in runs]
    return choose(ranked, ways_of(config), Judged(relevant, len(questions.qrels or questions.answers)))
