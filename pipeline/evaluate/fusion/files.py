"""Fuses run files of any systems into one run file, without a collection.

Legend of suffixes: R rows of a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa

from pipeline.data import run_files
from pipeline.data.qrels import Qrels, read_qrels
from pipeline.data.runs import SCHEMA, Run, trec_lines
from pipeline.data.text.text_files import ENDINGS, check_file
from pipeline.errors import InputError
from pipeline.evaluate.fusion.choice import Judged, Ways, choose
from pipeline.evaluate.fusion.fuse import RECIPROCAL_K, Method, fuse
from pipeline.evaluate.reciprocal_rank import run_reciprocal_ranks
from pipeline.paths import absolute_path
from pipeline.runtime.work import silent

WAYS = Ways(
    methods=("z_score_sum", "weighted_sum", "reciprocal_rank"),
    weights=tuple(n / 10 for n in range(1, 10)),
    k=RECIPROCAL_K,
    test="randomisation",
    permutations=10_000,
    seed=42,
)
"""The ways of the recipes (flows/recipes/base.yaml)."""
QUESTIONS = 512
"""Questions written at a time."""


@dataclass(frozen=True)
class Fused:
    """Result of a fusion of run files."""

    method: Method
    weight: float
    """Weight of the first run; the others share the rest equally."""
    reciprocal_k: float
    chosen_on_dev: bool
    """Whether judgements proved method and weight better than the default."""
    why: str
    """Why method and weight are these."""
    questions: int
    partial: int
    """Questions that some run does not have."""
    judged: int
    """Questions with a relevant passage, which are measured. 0 without judgements."""
    unlisted: int
    """Judged questions in no run: each counts as zero, as in `cocondenser evaluate`."""
    measured: dict[str, float]
    """MRR@10 of each file, and of `fused`; empty without judgements."""


def fuse_files(
    paths: Sequence[Path],
    out: Path,
    *,
    qrels: Path | None,
    method: Method | None,
    weight: float | None,
    relevance: int,
    depth: int,
) -> Fused:
    """Writes the TREC run `out` of all passages in at least one file, the first `depth` of each question.

    If `method` or `weight` is None, the default is used unless `qrels` prove another way better
    (`fusion_choice.choose`). Equal scores keep the order in which the files first name the passages.
    Raises InputError as `run_files.read_run_file` does, for a duplicate passage of a question, for qrels without a
    question of the runs, and if `out` is an input file or cannot be written.
    """
    _check(paths, out, qrels, weight)
    judgements = read_qrels(qrels) if qrels else {}
    questions: dict[str, int] = {}
    passages: dict[str, int] = {}
    runs = [numbered_run(path, questions, passages) for path in paths]
    ways = replace(WAYS, methods=(method,) if method else WAYS.methods, weights=(weight,) if weight else WAYS.weights)
    judged, unlisted, measured, total = 0, 0, dict[str, float](), len(questions)
    dev = None
    if qrels is not None:
        relevant, judged, unlisted = _relevant(judgements, questions, passages, relevance)
        if judged == unlisted:
            raise InputError(f"{qrels}: no question of the runs has a relevant passage in this file")
        dev = Judged(relevant, judged)
    chosen = choose(runs, ways, dev)
    choice = chosen.choice
    fused = fuse(runs, choice, ways.k)
    if qrels is not None:
        for name, run in zip([*map(str, paths), "fused"], [*runs, fused], strict=True):
            ranks_Q = run_reciprocal_ranks(run, relevant, total)
            measured[name] = round(float(ranks_Q.sum()) / judged, 6)
    _write(out, fused, [*questions], [*passages], depth)
    reason = chosen.chosen_on_dev, chosen.why
    listed_by_all = set.intersection(*(set(run.question_R.tolist()) for run in runs))
    return Fused(
        choice.method, choice.weight, ways.k, *reason, total, total - len(listed_by_all), judged, unlisted, measured
    )


def _check(paths: Sequence[Path], out: Path, qrels: Path | None, weight: float | None) -> None:
    """Raises InputError for faults that would otherwise appear after reading the files."""
    if len(paths) < 2:
        raise InputError(f"{paths[0]}: only one run; a fusion needs two or more")
    read = [path.resolve() for path in (*paths, *([qrels] if qrels else []))]
    for n, path in enumerate(paths):
        if read[n] in read[:n]:
            raise InputError(f"{path}: duplicate run file")
    for path in (*paths, *([qrels] if qrels else [])):
        check_file(path)
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"--out {absolute_path(out)}: {'a folder' if out.is_dir() else 'its folder does not exist'}")
    if out.suffix in ENDINGS:
        raise InputError(f"--out {out}: a run is written as plain text; choose a name without {out.suffix}")
    for path in (out.resolve(), _part(out).resolve()):
        if path in read:
            raise InputError(f"--out {out}: would overwrite {path}, an input file")
    if weight is not None and not 0 < weight < 1:
        raise InputError(f"--weight {weight:g}: must be greater than 0 and less than 1")


def numbered_run(path: Path, questions: dict[str, int], passages: dict[str, int]) -> Run:
    """Returns a run file with numbers of questions and passages; adds new ones to the two mappings."""
    rows, _ = run_files.read_run_file(path, partial(_numbered, questions), partial(_numbered, passages), silent)
    return rows.run(slice(None))


def _numbered(numbers: dict[str, int], name: str) -> int:
    return numbers.setdefault(name, len(numbers))


def _relevant(
    qrels: Qrels, questions: Mapping[str, int], passages: Mapping[str, int], relevance: int
) -> tuple[tuple[np.ndarray, np.ndarray], int, int]:
    """Returns the runs' positive judgements, by number; the number of judged questions; that of those in no run."""
    relevant_of = {q: [p for p, g in grades.items() if g >= relevance] for q, grades in qrels.items()}
    positives = {q: relevant for q, relevant in relevant_of.items() if relevant}
    listed = {q: positives[q] for q in positives if q in questions}
    pairs = [(questions[q], passages[p]) for q, relevant in listed.items() for p in relevant if p in passages]
    question_R, passage_R = np.array(pairs, np.int64).reshape(-1, 2).T
    return (question_R, passage_R), len(positives), len(positives) - len(listed)


def _part(out: Path) -> Path:
    """Returns the temporary path of `out`; `out` itself for a device or a pipe, which a rename must not replace."""
    if out.exists() and not out.is_file():
        return out
    target = out.resolve()
    return target.with_name(f"{target.name}.part")


@contextmanager
def _whole(out: Path) -> Iterator[TextIO]:
    """Opens `out` for writing; it changes only if everything is written. Raises InputError if that fails."""
    part = _part(out)
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        if part != out:
            part.rename(out.resolve())
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written: {error.strerror}") from None
    finally:
        if part != out:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _write(out: Path, run: Run, questions: Sequence[str], passages: Sequence[str], depth: int) -> None:
    query_ids, passage_ids = pa.array(questions, pa.string()), pa.array(passages, pa.string())
    top = run.rows(run.rank_R <= depth)
    rank_R = top.rank_R
    with _whole(out) as file:
        for first in range(0, len(questions), QUESTIONS):
            part = slice(*np.searchsorted(top.question_R, [first, first + QUESTIONS]))
            query_R = query_ids.take(pa.array(top.question_R[part]))
            passage_R = passage_ids.take(pa.array(top.passage_R[part]))
            columns = [pa.repeat("", len(query_R)), query_R, passage_R, rank_R[part], top.score_R[part]]
            file.write(trec_lines(pa.table(columns, schema=SCHEMA)))
