"""Builds a bm25 artifact in Java: `python -m pipeline.bm25.index_process JOB`, started only by pipeline.bm25.bm25.

JOB is JSON. Reports are JSON lines on the original stdout; all output of Java goes to stderr.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.bm25 import first_stage, other_systems
from pipeline.bm25.first_stage import Hits
from pipeline.bm25.java import in_java
from pipeline.bm25.languages import ENGLISH, language_of
from pipeline.bm25.lucene import QUERY_CHARACTERS, Document, analyser, best_hits, index, open_lucene, stop_words
from pipeline.bm25.settings import write_stop_words
from pipeline.bm25.texts import CONTROL, clean_question, contents, prepared
from pipeline.data.barred import Dropped, by_id
from pipeline.data.collection import Query, at_rows, passage_batches, passage_count, passage_ids, sample_rows
from pipeline.data.documents import are_cut
from pipeline.data.text.words import run_share
from pipeline.errors import InputError
from pipeline.notices import EXAMPLES, Examples, keep, notice, noticed, one_line
from pipeline.runtime.processes import Say, die_with_parent

QUERY_TERMS = 4_000
"""Maximum number of terms used of a question with weights."""
UNKNOWN_SHARE = 0.01
"""Largest number of unknown passages, as a share of the collection; more means that files and collection differ."""


def own_documents(collection: Path, job: Mapping[str, Any]) -> Iterator[Document]:
    """Yields the documents from the collection's own passages."""
    for batch in passage_batches(collection, ["passage_id", "title", "text"]):
        for passage_id, title, text in zip(*batch.values(), strict=True):
            yield passage_id, contents(title, text, job)


def other_documents(
    job: Mapping[str, Any], row: Mapping[str, int], counts: Counter[str], examples: Examples
) -> Iterator[Document]:
    """Yields the documents from passages of another system. `row`: row number by passage id of the collection.

    Counts `passages_unknown` and `passages_missing`; `examples` gets the first of each.
    Raises InputError for a duplicate id, and for too many unknown ones.
    """
    counts.update(passages_unknown=0, passages_missing=0)
    seen = bytearray(len(row))
    for place, passage_id, content in other_systems.passages(Path(job["passages"])):
        at = row.get(passage_id)
        if at is None:
            counts["passages_unknown"] += 1
            keep(examples, "passages_unknown", passage_id)
            if counts["passages_unknown"] > UNKNOWN_SHARE * len(row):
                raise InputError(
                    f"{place}: unknown passage id '{one_line(passage_id)}', one of more than 1 % of the collection's "
                    f"{len(row):,}"
                )
            continue
        if seen[at]:
            raise InputError(f"{place}: passage id '{one_line(passage_id)}' appears twice")
        seen[at] = 1
        yield (
            passage_id,
            other_systems.repeated(content) if isinstance(content, dict) else prepared(content.strip(), job),
        )
    counts["passages_missing"] = seen.count(0)
    examples["passages_missing"] = list(
        islice((passage_id for passage_id, at in row.items() if not seen[at]), EXAMPLES)
    )


def read_topics(
    job: Mapping[str, Any], questions: Sequence[Query], counts: Counter[str], examples: Examples
) -> dict[str, other_systems.Content]:
    """Reads {query id: content from another system} of the questions.

    Counts `topics_not_asked` and `questions_without_topic`; `examples` gets the first of each.
    Raises InputError for a duplicate question, for weights if the passages are text, and if the file has none of the
    questions.
    """
    query_ids = {q.query_id for q in questions}
    topics: dict[str, other_systems.Content] = {}
    counts.update(topics_not_asked=0)
    for place, query_id, content in other_systems.topics(Path(job["topics"])):
        if isinstance(content, dict) and job["scores"] != "weights":
            raise InputError(f"{place}: a question with weights, but bm25.passages has no passages with weights")
        if query_id not in query_ids:
            counts["topics_not_asked"] += 1
            keep(examples, "topics_not_asked", query_id)
        elif query_id in topics:
            raise InputError(f"{place}: question id '{one_line(query_id)}' appears twice")
        else:
            topics[query_id] = other_systems.counted(content) if job["scores"] == "weights" else content
    if not topics:
        raise InputError(f"{job['topics']}: none of its questions is one of the collection's")
    without = [q.query_id for q in questions if q.query_id not in topics]
    counts["questions_without_topic"], examples["questions_without_topic"] = len(without), without[:EXAMPLES]
    return topics


def query(
    query_id: str, content: other_systems.Content, job: Mapping[str, Any], counts: Counter[str], examples: Examples
) -> str:
    """Returns the query for Lucene. Counts `questions_cut` and `questions_with_control_characters`, with examples."""
    reasons = {
        "questions_cut": len(content) > (QUERY_TERMS if isinstance(content, dict) else QUERY_CHARACTERS),
        "questions_with_control_characters": not isinstance(content, dict) and CONTROL.search(content) is not None,
    }
    for reason in (name for name, holds in reasons.items() if holds):
        counts[reason] += 1
        keep(examples, reason, query_id)
    if isinstance(content, dict):
        return other_systems.repeated(dict(islice(content.items(), QUERY_TERMS)))
    return clean_question(content, job)


def build_artifact(autoclass: Any, job: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Writes the artifact without its settings into `job["out"]`. Returns its counts and notices."""
    collection, out = Path(job["collection"]), Path(job["out"])
    questions, barred, dropped = first_stage.queries_to_search(collection), by_id(collection), Dropped()
    names = ("questions_cut", "questions_with_control_characters", "questions_without_terms")
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    examples: Examples = {}
    empty: set[str] = set()
    topics = read_topics(job, questions, counts, examples) if job["topics"] else {q.query_id: q.text for q in questions}
    row = {passage_id: n for n, passage_id in enumerate(passage_ids(collection))}
    documents = other_documents(job, row, counts, examples) if job["passages"] else own_documents(collection, job)
    counts.update(index(autoclass, job, documents, say, examples))
    lucene = open_lucene(autoclass, out / "index", job)
    if language_of(job) != ENGLISH and (words := stop_words(analyser(autoclass, job))):
        write_stop_words(out, words)

    with ThreadPoolExecutor(job["threads"]) as pool:

        def find(piece: Sequence[Query], depth: int) -> list[Hits]:
            texts = [query(q.query_id, topics.get(q.query_id, ""), job, counts, examples) for q in piece]
            hits = list(pool.map(lambda text: best_hits(lucene.search, text, depth, row), texts))
            for q, text, (ids, _) in zip(piece, texts, hits, strict=True):
                if not ids and not lucene.terms(text):
                    counts["questions_without_terms"] += 1
                    empty.add(q.query_id)
                    if q.query_id in topics:
                        keep(examples, "questions_without_terms", q.query_id)
            return hits

        def progress(done: int, total: int | None, unit: str, numbers: Any = None) -> None:
            say({"progress": [done, total, unit]})

        counts.update(
            first_stage.write_first_stage(
                out,
                questions,
                barred,
                dropped,
                job["depths"],
                find,
                progress,
                examples,
                empty,
                are_cut(collection),
            )
        )
    uncut = [] if job["passages"] else runs_of_letters(collection)
    lines = first_stage.notices(counts, examples, dropped)
    return {**counts, **dropped.metrics(), **noticed([*lines, *uncut])}


def runs_of_letters(collection: Path) -> list[str]:
    """Returns a notice if passages are in scripts that the analyser cannot split into words."""
    rows = sample_rows(passage_count(collection))
    passages = at_rows(collection / "passages.parquet", rows, ["passage_id", "text"]).to_pylist()
    ids = [passage["passage_id"] for passage in passages if run_share(passage["text"]) > 0.5]
    what = f"passages in a script without spaces, which the analyser cannot split, in a sample of {len(rows):,}"
    advice = "BM25 finds few of them; bm25.run, bm25.passages and bm25.topics accept the output of another analyser"
    return [notice(what, len(ids), ids, advice)] if ids else []


if __name__ == "__main__":
    die_with_parent()
    in_java(lambda autoclass, job, say: say({"result": build_artifact(autoclass, job, say)}))
