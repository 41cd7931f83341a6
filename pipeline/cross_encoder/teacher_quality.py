"""A teacher compared with its student on dev questions: a cross-encoder that ranks worse teaches its mistakes.

Shapes: N pairs of a question (row of queries.parquet) and a passage (row of passages.parquet).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.notices import noticed
from pipeline.runtime.work import Metrics

if TYPE_CHECKING:
    from pipeline.data.judged import Judged
    from pipeline.data.runs import Run

QUESTIONS = 200
"""Most dev questions that are measured; more are sampled."""
CANDIDATES = 50
"""First passages of the student's list that the teacher orders."""
ADVICE = "take another one (cross_encoder.checkpoint, cross_encoder_initial), or learn without its labels"


def teacher_quality(
    score: Callable[[np.ndarray, np.ndarray], np.ndarray], collection: Path, run: Path | None
) -> Metrics:
    """Returns the MRR@10 of a student's dev lists, in its own order and with the first CANDIDATES in the teacher's.

    `score`: returns the teacher's logits of pairs. `run`: the student's. Passages of a judged document count as judged.
    Without judged dev questions in the run, the metrics are `dev_questions: 0` alone. A notice says if the teacher is
    below the student.
    """
    from pipeline.data.judged import read_questions, take
    from pipeline.data.runs import ranked, read_run

    known = read_questions(collection, "dev")
    judged = np.random.default_rng(0).permutation(np.flatnonzero(known.lists.lengths))
    known = take(known, np.sort(judged[:QUESTIONS]))
    ids = known.query_ids.combine_chunks(), known.passage_ids.combine_chunks()
    lists = read_run(run, "dev", *ids) if run is not None and len(known.queries) else None
    if lists is None or not len(lists.question_R):
        return {"dev_questions": 0}
    student = lists.rows(lists.rank_R <= CANDIDATES)
    logit_N = score(known.queries[student.question_R], student.passage_R)
    teacher = ranked(student.question_R, student.passage_R, logit_N)
    of_teacher, of_student = (mean_reciprocal_rank(one, known) for one in (teacher, student))
    return {
        "dev_questions": len(known.queries),
        "dev_RR@10": of_teacher,
        "student_dev_RR@10": of_student,
        **noticed([warning(len(known.queries), of_teacher, of_student)]),
    }


def mean_reciprocal_rank(run: "Run", known: "Judged") -> float:
    """Returns the MRR@10 of the judged questions; a question without a list counts as 0."""
    from pipeline.evaluate.reciprocal_rank import run_reciprocal_ranks

    judged = np.arange(len(known.queries)).repeat(known.lists.lengths), known.lists.flat
    return float(run_reciprocal_ranks(run, judged, len(known.queries)).mean())


def warning(questions: int, of_teacher: float, of_student: float) -> str:
    """Returns a line if the teacher is below its student, else an empty one."""
    if of_teacher >= of_student:
        return ""
    return (
        f"the cross-encoder is below its student on dev: MRR@10 {of_teacher:.3f} where the student's order of the same "
        f"passages has {of_student:.3f} ({questions:,} questions); {ADVICE}"
    )
