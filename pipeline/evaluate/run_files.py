"""Run files of any systems measured by judgements, without a collection.

Legend of suffixes: R rows of a run, Q questions, M measures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.data import run_files
from pipeline.data.qrels import read_qrels
from pipeline.data.text_files import check_file
from pipeline.errors import InputError
from pipeline.evaluate.measures import MEASURES, as_ranks, measure
from pipeline.evaluate.shallow import cut_at, shallow
from pipeline.evaluate.significance import Test, tabulated
from pipeline.runtime.work import silent

Estimates = Mapping[str, Mapping[str, float]]
"""{measure: {mean, low, high, ...}}: ends of the 95 % interval."""


@dataclass(frozen=True)
class Counts:
    """What of a file was not measured, or measured as zero."""

    rows: int
    rows_of_other_questions: int
    """Of questions that have no relevant passage in the judgements."""
    questions_without_results: int
    """Each counts as zero."""
    cut_at: int | None
    """The length of the longest list."""
    shallow: str
    """What that makes of the measures that look deeper; empty where none does."""


@dataclass(frozen=True)
class Difference:
    """a minus b, paired by question."""

    a: str
    b: str
    measures: Estimates
    """With p, p_holm, wins, ties and losses."""


@dataclass(frozen=True)
class Evaluated:
    """Figures of run files, over the questions that have a relevant passage."""

    questions: int
    questions_without_relevant: int
    """Judged, but nothing relevant was found: no part of any mean."""
    systems: dict[str, Estimates]
    """By file."""
    differences: list["Difference"]
    """Of each two files."""
    counts: dict[str, Counts]


def evaluate_files(
    paths: Sequence[Path], qrels: Path, relevance: int, test: Test, samples: int, seed: int
) -> Evaluated:
    """Every measure of each run file, with intervals by a bootstrap over questions, and how each two differ.

    `samples`: resamples of the bootstrap, and of the randomisation test.

    Passages of a question stand by score, equal scores as the file has them (trec_eval itself orders them by id).
    Binary measures count judgements from `relevance` on, nDCG takes grades. Raises InputError as `run_file.rows` and
    `read_qrels` do, for a passage twice under a question, where no question has a relevant passage, and for a run of
    other questions alone.
    """
    _check(paths, qrels)
    judgements = read_qrels(qrels, "test")
    if not judgements:
        raise InputError(f"{qrels}: no judgements{' of test' if qrels.suffix == '.parquet' else ''}")
    judged = {q: grades for q, grades in judgements.items() if max(grades.values()) >= relevance}
    if not judged:
        raise InputError(f"{qrels}: no question has a passage of relevance {relevance} or more")
    values_QM: dict[str, np.ndarray] = {}  # by number: names may hold what joins two of them
    counts: dict[str, Counts] = {}
    for n, path in enumerate(paths):
        ranks, rows, others = read(path, qrels, [*judged])
        values_QM[str(n)] = measure(ranks, [*judged], judged, relevance)
        cut = cut_at(max(map(len, ranks.values())))
        counts[str(path)] = Counts(rows, others, len(judged) - len(ranks), cut, shallow(cut, MEASURES))
    pairs = [(after, before) for before, after in combinations(values_QM, 2)]
    figures = tabulated(values_QM, MEASURES, pairs, test, permutations=samples, samples=samples, seed=seed)
    differences = [
        Difference(str(paths[int(a)]), str(paths[int(b)]), figures["differences"][f"{a} - {b}"]) for a, b in pairs
    ]
    systems = {str(path): figures["systems"][str(n)] for n, path in enumerate(paths)}
    without = len(judgements) - len(judged)
    return Evaluated(len(judged), without, systems, differences, counts)


def _check(paths: Sequence[Path], qrels: Path) -> None:
    for n, path in enumerate(paths):
        if path.resolve() in [earlier.resolve() for earlier in paths[:n]]:
            raise InputError(f"{path}: given twice")
    for path in (*paths, qrels):
        check_file(path)


def read(path: Path, qrels: Path, query_ids: Sequence[str]) -> tuple[dict[str, dict[str, int]], int, int]:
    """({question: {passage: -rank}} of the questions `query_ids`, rows of the file, rows of other questions)."""
    questions = {query_id: n for n, query_id in enumerate(query_ids)}
    passages: dict[str, int] = {}
    found, counts = run_files.read(
        path,
        lambda query_id: questions.setdefault(query_id, len(questions)),
        lambda passage_id: passages.setdefault(passage_id, len(passages)),
        silent,
    )
    known_R = found.question_R < len(query_ids)
    if not known_R.any():
        raise InputError(f"{path}: none of its questions has a relevant passage in {qrels}")
    ids = pa.array(query_ids, pa.string()), pa.array([*passages], pa.string())
    return as_ranks(found.run(known_R), *ids), counts["rows"], int((~known_R).sum())
