"""The files of every first stage, independent of the search: the runs of all splits, and the first negatives."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.data import run_files, runs
from pipeline.data.barred import ById, Dropped, free
from pipeline.data.collection import Query, passage_ids, read_qrels, read_queries
from pipeline.data.documents import are_cut
from pipeline.data.parquet import parquet_writer
from pipeline.notices import Examples, keep, noticed, of_counts
from pipeline.runtime.work import Metrics, Progress, Work

QUESTIONS = 512
"""Number of questions searched between two writes."""
NOTICES = {
    "questions_without_hits": ("questions without hits", ""),
    "questions_without_terms": ("questions without a term after the analyser", ""),
    "questions_cut": ("questions cut, longer than 20,000 characters or 4,000 weighted terms", ""),
    "questions_with_control_characters": ("questions whose control characters became spaces", ""),
    "questions_without_topic": ("questions that the file lacks, without hits", "bm25.topics"),
    "topics_not_asked": (
        "questions of the file left out, unknown, or of training without a relevant passage",
        "bm25.topics",
    ),
    "passages_empty": ("passages not indexed, without text", ""),
    "passages_missing": ("passages that the files lack, never found", "bm25.passages"),
    "passages_unknown": ("passages of the files left out, unknown to the collection", "bm25.passages"),
    "rows_of_other_questions": (
        "rows left out, of unknown questions, or of training questions without a relevant passage",
        "bm25.run",
    ),
    "rows_of_unknown_passages": ("rows left out, of unknown passages", "bm25.run"),
}
"""{count of a first stage: (what is counted, advice)}."""
WITHIN = ("questions_without_hits", "questions_without_terms", "questions_without_topic")
"""Counts, each of which includes the questions of the next one."""

Hits = tuple[list[str], list[float]]
"""Passage ids and scores of a question, best first."""
Find = Callable[[Sequence[Query], int], Sequence[Hits]]
"""(questions, k) -> hits, at most k for each."""


def queries_to_search(collection: Path) -> list[Query]:
    """Reads the questions to search. Training questions without a judged passage, which train nothing, are left out."""
    queries = read_queries(collection)
    qrels = read_qrels(collection, query_ids=[q.query_id for q in queries])
    judged = {query for query, grades in qrels.items() if max(grades.values()) > 0}
    return [q for q in queries if q.split != "train" or q.query_id in judged]


def write_first_stage(
    out: Path,
    questions: Sequence[Query],
    barred: ById,
    dropped: Dropped,
    depths: Mapping[str, int],
    find: Find,
    progress: Progress,
    examples: Examples | None = None,
    explained: Collection[str] = (),
    cut: bool = False,
) -> Counter[str]:
    """Writes `run.parquet`, `run.trec` and `negatives.parquet`. `depths`: passages kept, by split.

    `barred`: see `barred.by_id`; `dropped` counts the barred hits. `cut`: see `runs.writer`.
    Counts `questions`, `questions_without_hits` and `negatives`. `examples` gets the first questions without hits,
    except those in `explained`, to which `find` may add.
    """
    counts: Counter[str] = Counter(questions=0, questions_without_hits=0, negatives=0)
    examples = {} if examples is None else examples
    with (
        runs.writer(out, cut) as write_run,
        parquet_writer(out / "negatives.parquet", runs.NEGATIVES, compression="zstd") as negatives,
    ):
        for split, depth in depths.items():
            members = [q for q in questions if q.split == split]
            for piece in (members[i : i + QUESTIONS] for i in range(0, len(members), QUESTIONS)):
                hits_of = find(piece, depth)
                ids = [q.query_id for q in piece]
                write_run(split, *run_columns(ids, hits_of))
                counts["questions"] += len(piece)
                without_hits = [query_id for query_id, (passages, _) in zip(ids, hits_of, strict=True) if not passages]
                counts["questions_without_hits"] += len(without_hits)
                for query_id in without_hits:
                    if query_id not in explained:
                        keep(examples, "questions_without_hits", query_id)
                if split == "train" and (rows := list(negative_rows(ids, hits_of, barred, dropped))):
                    counts["negatives"] += len(rows)
                    negatives.write_table(pa.table(list(zip(*rows, strict=True)), schema=runs.NEGATIVES))
                progress(counts["questions"], len(questions), "questions")
    return counts


def notices(counts: Mapping[str, int], examples: Examples, dropped: Dropped) -> list[str]:
    """Returns the notices of a first stage. A question counts in only one: the most specific one of WITHIN."""
    least = {wide: counts.get(wide, 0) - counts.get(narrow, 0) for wide, narrow in pairwise(WITHIN)}
    return [*of_counts(NOTICES, {**counts, **least}, examples), *dropped.notices(expected=("judged",))]


def run_columns(query_ids: Sequence[str], found: Sequence[Hits]) -> tuple[list[str], list[str], np.ndarray]:
    """Returns the hits of each question as columns of a run: query ids, passage ids, scores."""
    return (
        [q for q, (ids, _) in zip(query_ids, found, strict=True) for _ in ids],
        [i for ids, _ in found for i in ids],
        np.array([s for _, scores in found for s in scores], np.float64),
    )


def negative_rows(
    query_ids: Sequence[str], found: Sequence[Hits], barred: ById, dropped: Dropped
) -> Iterator[tuple[str, str, str, int, float]]:
    """Yields the rows of negatives.parquet: hits that are not barred, with their ranks among all hits."""
    for query_id, (ids, scores) in zip(query_ids, found, strict=True):
        reason_N = barred.of(query_id, ids)
        dropped.count([query_id] * len(ids), ids, reason_N)
        for place in free(reason_N):
            yield query_id, ids[place], "bm25", place + 1, scores[place]


def from_run(path: Path, depths: Mapping[str, int], collection: Path, work: Work) -> Metrics:
    """Writes the artifact from a run with questions of any split, in any order.

    A question's passages are sorted by score, regardless of their ranks. Rows of unknown questions, and up to 1 % of
    rows with unknown passages, are left out and counted.
    Raises InputError as `run_files.read_run_file` does.
    """
    from pipeline.data.barred import by_id

    ids, dropped = passage_ids(collection), Dropped()
    questions = queries_to_search(collection)
    place = {q.query_id: n for n, q in enumerate(questions)}
    row = {passage_id: n for n, passage_id in enumerate(ids)}
    examples: Examples = {}
    rows, counts = run_files.read_run_file(path, place.get, row.get, work.progress, examples)
    start_Q = np.searchsorted(rows.question_R, np.arange(len(questions) + 1))

    def find(piece: Sequence[Query], depth: int) -> list[Hits]:
        spans = ((start_Q[n], min(start_Q[n] + depth, start_Q[n + 1])) for n in (place[q.query_id] for q in piece))
        return [hits(rows, slice(*span), ids) for span in spans]

    barred = by_id(collection)
    cut = are_cut(collection)
    counts.update(
        write_first_stage(work.out, questions, barred, dropped, depths, find, work.progress, examples, cut=cut)
    )
    return {**counts, **dropped.metrics(), **noticed(notices(counts, examples, dropped))}


def hits(rows: run_files.RunRows, span: slice, ids: Sequence[str]) -> Hits:
    """Returns the rows of one question as hits."""
    return [ids[row] for row in rows.passage_R[span]], rows.score_R[span].tolist()
