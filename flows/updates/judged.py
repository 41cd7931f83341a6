"""Test questions of a folder in BEIR's layout, such as that of `judge`, on a collection that has changed since."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from flows.judging.questions import all_questions
from flows.serving.ask import MOST, ask, check_question
from flows.serving.engine import Engine
from flows.serving.question import Question
from flows.serving.session import open_session
from pipeline.data.qrels import Qrels, read_qrels
from pipeline.data.readers import beir
from pipeline.data.stored import read_table
from pipeline.data.text import text_files
from pipeline.errors import InputError, JavaFailed
from pipeline.evaluate.compare import cutoff
from pipeline.evaluate.measures import MEASURES, measure
from pipeline.notices import one_line

AT_ONCE = 256
"""Questions that are answered together; the passages of their answers are in memory."""


@dataclass(frozen=True)
class JudgedQuestions:
    folder: Path
    texts: Mapping[str, str]
    grades: Qrels
    """{question: {document: the largest grade of its passages}}. A passage's id may change with its document."""


def read_judged(folder: Path) -> JudgedQuestions:
    """Reads the test questions of a folder in BEIR's layout.

    A passage belongs to the document `doc_id` in corpus.jsonl. Without this key or this file, the ids in
    qrels/test.tsv are those of documents. Raises InputError for a missing or wrong file, for a question that appears
    twice, and for a judged question that has no text.
    """
    if not folder.is_dir():
        what = "not a folder" if folder.exists() else "no such folder"
        raise InputError(f"{folder}: {what}; queries.jsonl and qrels/test.tsv are expected in it")
    qrels_path, queries_path = beir.qrels_files(folder).get("test"), text_files.find(folder, "queries.jsonl")
    if qrels_path is None or queries_path is None:
        missing = "qrels/test.tsv" if qrels_path is None else "queries.jsonl"
        raise InputError(f"{folder / missing} does not exist, plain or compressed")
    qrels = read_qrels(qrels_path)
    if not qrels:
        raise InputError(f"{qrels_path}: no judgement")
    passage_ids = {passage_id for grades in qrels.values() for passage_id in grades}
    document = _documents(text_files.find(folder, "corpus.jsonl"), passage_ids)
    texts = {one.query_id: one.text for one in all_questions(queries_path) if one.query_id in qrels}
    if absent := [query_id for query_id in qrels if query_id not in texts]:
        raise InputError(f"{qrels_path}: question '{one_line(absent[0])}' is not in {queries_path.name}")
    grades: dict[str, dict[str, int]] = {}
    for query_id in texts:
        of_question = grades.setdefault(query_id, {})
        for passage_id, grade in qrels[query_id].items():
            doc_id = document.get(passage_id, passage_id)
            of_question[doc_id] = max(grade, of_question.get(doc_id, grade))
    return JudgedQuestions(folder, texts, grades)


def check_grades(judged: JudgedQuestions, relevance: int) -> None:
    """Raises InputError if no document has a grade of at least `relevance`, which makes it relevant."""
    largest = max(grade for grades in judged.grades.values() for grade in grades.values())
    if largest < relevance:
        raise InputError(
            f"{judged.folder}: no relevant document: the largest grade of qrels/test.tsv is {largest}, and "
            f"evaluate.relevance is {relevance}"
        )


def measured(judged: JudgedQuestions, engine: Engine, query_ids: list[str], name: str, relevance: int) -> np.ndarray:
    """The measure `name` of the documents that a run finds for each question, float64 [questions].

    Judged documents that its collection does not have do not count: nothing can find them. A question that it cannot
    answer counts as 0. Raises InputError for a damaged run, and JavaFailed.
    """
    found = ranked_documents(judged, engine, query_ids, cutoff(name) or MOST)
    grades = grades_there(judged, engine)
    ranks = {query_id: ranked for query_id, ranked in found.items() if ranked}
    values_QM = measure(ranks, query_ids, {q: grades[q] for q in query_ids}, relevance)
    values_Q: np.ndarray = values_QM[:, MEASURES.index(name)]
    return values_Q


def ranked_documents(
    judged: JudgedQuestions, engine: Engine, query_ids: list[str], depth: int
) -> dict[str, dict[str, int]]:
    """{question: {document: -rank}} of the first `depth` documents, best first, as `search` answers."""
    found: dict[str, dict[str, int]] = {}
    with open_session(engine) as session:
        k = min(depth, session.passages.count)
        for start in range(0, len(query_ids), AT_ONCE):
            some = query_ids[start : start + AT_ONCE]
            questions = [check_question(session, Question(judged.texts[q], k, engine.by)) for q in some]
            for query_id, answers in zip(some, ask(session, questions), strict=True):
                if isinstance(answers, JavaFailed):
                    raise answers
                ranked = [] if isinstance(answers, InputError) else answers
                found[query_id] = {answer.doc_id: -answer.rank for answer in ranked}
    return found


def answerable(judged: JudgedQuestions, engines: Sequence[Engine], relevance: int) -> list[str]:
    """The questions with a relevant document in the collection of each run. Raises InputError if there is none."""
    query_ids = [*judged.grades]
    for engine in engines:
        grades = grades_there(judged, engine)
        query_ids = [q for q in query_ids if max(grades[q].values(), default=relevance - 1) >= relevance]
    if not query_ids:
        raise InputError(f"{judged.folder}: no test question has a relevant document in the collection")
    return query_ids


def grades_there(judged: JudgedQuestions, engine: Engine) -> Qrels:
    """The judgements of documents that the collection of a run has; of some questions none."""
    wanted = sorted(set().union(*judged.grades.values()))
    table = read_table(engine.collection / "passages.parquet", columns=["doc_id"], filters=[("doc_id", "in", wanted)])
    there = {*pc.unique(table["doc_id"]).to_pylist()}
    return {q: {d: grade for d, grade in grades.items() if d in there} for q, grades in judged.grades.items()}


def _documents(corpus: Path | None, passage_ids: set[str]) -> dict[str, str]:
    """{passage: its document}, of those passages that have a `doc_id`."""
    found = {}
    for place, row in text_files.json_lines(corpus) if corpus else ():
        passage_id = text_files.text_of(place, row, "_id")
        if passage_id in passage_ids and (doc_id := text_files.text_of(place, row, "doc_id", required=False)):
            found[passage_id] = doc_id
    return found
