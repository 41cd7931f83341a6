"""Evaluates run files of any systems with qrels, without a collection.

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
from pipeline.data.text.text_files import check_file
from pipeline.errors import InputError
from pipeline.evaluate.measures import MEASURES, as_ranks, measure
from pipeline.evaluate.shallow import cut_at, shallow
from pipeline.evaluate.significance.paired import Test, tabulated
from pipeline.runtime.work import silent

Estimates = Mapping[str, Mapping[str, float]]
"""{measure: {mean, low, high, ...}}; low and high: ends of the 95 % interval."""


@dataclass(frozen=True)
class Counts:
    """Parts of a file that are not measured, or count as zero."""

    rows: int
    rows_of_other_questions: int
    """Rows of questions without a relevant passage in the qrels."""
    questions_without_results: int
    """Each counts as zero."""
    cut_at: int | None
    """The length of the longest list."""
    shallow: str
    """The effect on deeper measures; empty if there is none."""


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
    """Judged questions without a relevant passage: excluded from all means."""
    systems: dict[str, Estimates]
    """{file: figures}."""
    differences: list["Difference"]
    """One for each pair of files."""
    counts: dict[str, Counts]


def evaluate_files(
    paths: Sequence[Path], qrels: Path, relevance: int, test: Test, samples: int, seed: int
) -> Evaluated:
    """Returns all measures of each run file, with bootstrap intervals over questions, and the difference of each pair.

    `samples`: resamples of the bootstrap, and of the randomisation test.

    Passages of a question are sorted by score, equal scores in the file's order (trec_eval orders them by id).
    In binary measures judgements of at least `relevance` are relevant, nDCG uses grades. Raises InputError as
    `run_files.read_run_file` and `read_qrels` do, for a duplicate passage of a question, if no question has a relevant
    passage, and for a run without any of the judged questions.
    """
    _check(paths, qrels)
    judgements = read_qrels(qrels, "test")
    if not judgements:
        raise InputError(f"{qrels}: no judgements{' of test' if qrels.suffix == '.parquet' else ''}")
    judged = {q: grades for q, grades in judgements.items() if max(grades.values()) >= relevance}
    if not judged:
        raise InputError(f"{qrels}: no question has a passage of relevance {relevance} or more")
    values_QM: dict[str, np.ndarray] = {}  # by number: names may contain " - ", which joins two of them
    counts: dict[str, Counts] = {}
    for n, path in enumerate(paths):
        ranks, rows, others = read_ranks(path, qrels, [*judged])
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
            raise InputError(f"{path}: duplicate run file")
    for path in (*paths, qrels):
        check_file(path)


def read_ranks(path: Path, qrels: Path, query_ids: Sequence[str]) -> tuple[dict[str, dict[str, int]], int, int]:
    """Returns ({question: {passage: -rank}} of `query_ids`, rows of the file, rows of other questions)."""
    questions = {query_id: n for n, query_id in enumerate(query_ids)}
    passages: dict[str, int] = {}
    rows, counts = run_files.read_run_file(
        path,
        lambda query_id: questions.setdefault(query_id, len(questions)),
        lambda passage_id: passages.setdefault(passage_id, len(passages)),
        silent,
    )
    known_R = rows.question_R < len(query_ids)
    if not known_R.any():
        raise InputError(f"{path}: none of its questions has a relevant passage in {qrels}")
    ids = pa.array(query_ids, pa.string()), pa.array([*passages], pa.string())
    return as_ranks(rows.run(known_R), *ids), counts["rows"], int((~known_R).sum())
