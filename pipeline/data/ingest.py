"""Ingest: turns a source of any supported format into a collection."""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from pipeline.data.barred import ById, Dropped, by_id, content_of, free
from pipeline.data.collection import (
    ROWS,
    SPLITS,
    Judgement,
    Negative,
    Passage,
    Query,
    Source,
    at_rows,
    passage_batches,
    schemas,
    write_table,
)
from pipeline.data.ids import check_id, contains, forbid_repeats, hash_id, run_starts, sort
from pipeline.data.ingest_notices import NOTICES, without_positives
from pipeline.data.leaks import leaks
from pipeline.data.metadata import keep_metadata
from pipeline.data.near_duplicates.groups import write_groups
from pipeline.data.near_duplicates.minhash import find_groups
from pipeline.data.readers import folder, several, single
from pipeline.data.readers.text_config import TextConfig
from pipeline.data.text.words import blank, count
from pipeline.errors import InputError
from pipeline.notices import EXAMPLES, Examples, noticed, of_counts, one_line
from pipeline.notices import keep as keep_example
from pipeline.runtime.work import Metrics, Progress, Work

Pair = TypeVar("Pair", Judgement, Negative)

UNKNOWN_SHARE = 0.01  # largest share of rows with unknown ids; more means that the files do not belong together
MISSING_SHARE = 0.5  # largest share of dev and test judgements whose passages the corpus lacks, for the same reason
FEW = 10  # number of such judgements that is always allowed

READERS = single.READERS | {"several": several}
IngestConfig = Annotated[single.SingleConfig | several.SeveralConfig, Field(discriminator="reader")]


def missing(config: IngestConfig) -> list[str]:
    """Returns one line for each missing input that cannot be downloaded now, with the commands to get it. Fast."""
    return READERS[config.reader].missing(config)


def sources(config: IngestConfig) -> dict[str, Path]:
    """Returns {name: path} of the files that enter the key in addition to the fields of type Path."""
    return several.sources(config) if isinstance(config, several.SeveralConfig) else single.sources(config)


def libraries(config: IngestConfig) -> tuple[str, ...]:
    """Returns the libraries whose versions change the bytes: one ends sentences, if texts are cut, or made into
    questions, at their ends; others convert documents, or compare passages.
    """
    parts = config.parts if isinstance(config, several.SeveralConfig) else [config]
    cut = any(getattr(part, "passage_words", None) or part.reader == "text" for part in parts)
    converters = [library for part in parts if isinstance(part, TextConfig) for library in folder.libraries(part)]
    compare = any(getattr(part, "near_duplicates", None) is not None for part in parts)
    return (*(("sentencex",) if cut else ()), *dict.fromkeys(converters), *(("datasketch",) if compare else ()))


def ingest(config: IngestConfig, work: Work) -> Metrics:
    """Writes passages, queries, qrels and (if the source has them) negatives as Parquet, and ingest.json.

    Further columns that the configuration names are written to metadata.parquet (pipeline/data/metadata.py).

    Memory does not grow with the texts: rows are streamed, and the checks keep 8 bytes per id; for negatives see
    `barred.by_id`. Dropped and counted are: passages and queries without text and all rows that refer to them;
    judgements of unknown ids, up to 1 %; duplicate judgements; and barred negatives (pipeline/data/barred.py).
    Judgements of dev and test for passages that the corpus lacks are kept: a relevant passage that cannot be found
    still counts, as in trec_eval, BEIR and MTEB. Notices name the first examples of each, and dev and test questions
    that are training questions too. Passages that almost equal each other are grouped if the configuration says so
    (pipeline/data/near_duplicates/minhash.py). Raises InputError for invalid input.
    """
    source: Source = READERS[config.reader].read(config, work.progress)
    counts: Counter[str] = Counter()
    examples: Examples = {}
    tables = schemas(source.judges_documents)
    names = getattr(config, "metadata", ())
    column_metrics: Metrics = {}

    def write(name: str, rows: Iterable[Sequence]) -> None:
        counts[name] = write_table(work.out / f"{name}.parquet", tables[name], rows)

    passages, documents, queries, empty, cut = array("Q"), array("Q"), array("Q"), array("Q"), array("Q")
    placed = _passages(source, passages, documents, empty, cut, counts, examples, work.progress)
    columns = attrgetter(*tables["passages"].names)  # no metadata
    write("passages", map(columns, keep_metadata(placed, names, work.out, column_metrics)))
    if not counts["passages"]:
        raise InputError(f"ingest: the {config.reader} source holds no passage with text")
    known_passages = sort(passages)
    forbid_repeats("passage id", known_passages, ((place, row.passage_id) for place, row in source.passages()))
    forbid_repeats(
        "document (its passages must be neighbours)",
        sort(documents),
        run_starts((place, row.doc_id) for place, row in source.passages()),
    )

    write("queries", _queries(source, queries, empty, counts, examples))
    known_queries = sort(queries)
    forbid_repeats("query id", known_queries, ((place, row.query_id) for place, row in source.queries()))

    similarity = getattr(config, "near_duplicates", None)
    if similarity is not None:
        _group_passages(work.out, similarity, counts, examples, work.progress)
    left_out, dropped = sort(empty), Dropped()
    ids = known_queries, sort(cut) if source.judges_documents else known_passages, left_out
    counts["missing_qrels"] = 0
    write("qrels", _distinct(_known("qrels", _named(source.qrels()), *ids, counts, examples), counts, examples))
    if source.negatives:
        ids = known_queries, known_passages, left_out
        rows = _known("negatives", _named(source.negatives()), *ids, counts, examples)
        write("negatives", _free((row for _, row in rows), by_id(work.out), dropped))
        counts.update(dropped.metrics())

    counts.update(source.counts)
    metrics: Metrics = dict(counts) | column_metrics
    (work.out / "ingest.json").write_text(json.dumps(metrics, indent=1, sort_keys=True) + "\n")
    lines = of_counts(NOTICES, metrics, examples | source.examples)
    lines += [*source.notices, *dropped.notices(), *without_positives(work.out), *leaks(work.out, similarity)]
    return {**metrics, **noticed(lines)}


def _passages(
    source: Source,
    ids: array,
    documents: array,
    empty: array,
    cut: array,
    counts: Counter[str],
    examples: Examples,
    progress: Progress,
) -> Iterator[tuple[str, Passage]]:
    """Yields (place, passage) of the passages with text, with `doc_id` set.

    Appends the hashes of ids to `ids`, `documents`, `empty` and, of documents that are cut, `cut`.
    """
    counts.update(documents=0, words=0, empty_passages=0)
    document, whole = None, ""
    for done, (place, row) in enumerate(source.passages(), 1):
        if done % 1000 == 0:
            progress(done, None, "passages")
        _check(place, "passage", row.passage_id, row.doc_id, row.title, row.text)
        if "\0" in row.doc_id:  # white space is allowed: the id may be a title
            raise InputError(f"{place}: document id '{one_line(row.doc_id)}' holds a NUL character; remove it")
        if blank(row.text) and blank(row.title):
            counts["empty_passages"] += 1
            keep_example(examples, "empty_passages", row.passage_id)
            empty.append(hash_id(row.passage_id))
            if row.document:
                empty.append(hash_id(row.document))
            continue
        ids.append(hash_id(row.passage_id))
        if row.document != whole:
            whole = row.document
            cut.append(hash_id(whole))
        if not row.doc_id or row.doc_id != document:
            counts["documents"] += 1
            if row.doc_id:
                documents.append(hash_id(row.doc_id))
        document = row.doc_id
        counts["words"] += count(row.text)
        yield place, row._replace(doc_id=row.doc_id or row.passage_id)


def _group_passages(
    collection: Path, similarity: float, counts: Counter[str], examples: Examples, progress: Progress
) -> None:
    """Writes the groups of almost equal passages (pipeline/data/near_duplicates/groups.py)."""

    def texts() -> Iterator[list[str]]:
        done = 0
        for batch in passage_batches(collection, ["title", "text"]):
            yield [*map(content_of, batch["title"], batch["text"])]
            progress(done := done + len(batch["text"]), counts["passages"], "passages compared")

    groups = find_groups(texts, similarity)
    write_groups(collection, groups)
    counts["near_duplicate_groups"], counts["near_duplicates"] = groups.count, len(groups) - groups.count
    later = groups.row_U != groups.first_U
    shown = [rows[later][:EXAMPLES] for rows in (groups.row_U, groups.first_U)]
    ids = (at_rows(collection / "passages.parquet", rows, ["passage_id"])["passage_id"].to_pylist() for rows in shown)
    for pair in zip(*ids, strict=True):
        keep_example(examples, "near_duplicates", " as ".join(pair))


def _queries(source: Source, ids: array, empty: array, counts: Counter[str], examples: Examples) -> Iterator[Query]:
    """Yields the queries with text. Appends the hashes of ids to `ids` and `empty`."""
    counts.update({"empty_queries": 0, **{f"{split}_queries": 0 for split in SPLITS}})
    for place, row in source.queries():
        _check(place, "query", row.query_id, row.text, *row.answers)
        if blank(row.text):
            counts["empty_queries"] += 1
            keep_example(examples, "empty_queries", row.query_id)
            empty.append(hash_id(row.query_id))
            continue
        ids.append(hash_id(row.query_id))
        counts[f"{row.split}_queries"] += 1
        yield row


def _named(rows: Iterator[tuple[str, Pair]]) -> Iterator[tuple[str, Pair]]:
    """Yields the rows. Raises InputError for an id that `ids.check_id` rejects, before it is counted as unknown."""
    for place, row in rows:
        check_id(place, "query", row.query_id)
        check_id(place, "passage", row.passage_id)
        yield place, row


def _known(
    name: str,
    rows: Iterator[tuple[str, Pair]],
    queries: np.ndarray,
    passages: np.ndarray,
    empty: np.ndarray,
    counts: Counter[str],
    examples: Examples,
) -> Iterator[tuple[str, Pair]]:
    """Yields the rows with known query and passage, and dev and test judgements of which only the passage is unknown.

    Of the latter, relevant ones are counted, and `examples` gets their first ids. Raises InputError at the end if too
    many rows are dropped for unknown ids, or too many dev and test judgements name unknown passages.
    """
    counts.update({f"unknown_{name}": 0, f"{name}_to_empty": 0})
    total, measured_rows, lacking_rows = 0, 0, 0
    first: dict[str, str] = {}
    while group := list(islice(rows, ROWS)):
        total += len(group)
        query_ids = [row.query_id for _, row in group]
        passage_ids = [row.passage_id for _, row in group]
        query_known, passage_known = contains(queries, query_ids), contains(passages, passage_ids)
        known = query_known & passage_known
        to_empty = ~known & (contains(empty, query_ids) | contains(empty, passage_ids))
        unknown = ~known & ~to_empty
        measured = np.array([isinstance(row, Judgement) and row.split != "train" for _, row in group])
        missing = query_known & ~passage_known & measured
        measured_rows, lacking_rows = measured_rows + int(measured.sum()), lacking_rows + int((missing & unknown).sum())
        left_out = {f"unknown_{name}": unknown & ~missing, f"{name}_to_empty": to_empty & ~missing}
        for reason, dropped in left_out.items():
            counts[reason] += int(dropped.sum())
            for i in np.flatnonzero(dropped)[:EXAMPLES]:
                keep_example(examples, reason, f"{query_ids[i]} {passage_ids[i]}")
        relevant = np.array([isinstance(row, Judgement) and row.relevance > 0 for _, row in group])
        lacking = np.flatnonzero(missing & relevant)
        if len(lacking):
            counts[f"missing_{name}"] += len(lacking)
            for i in lacking[:EXAMPLES]:
                keep_example(examples, f"missing_{name}", passage_ids[i])
        for reason, rows_of in (("dropped", unknown & ~missing), ("kept", unknown & missing)):
            if reason not in first and rows_of.any():
                place, row = group[int(rows_of.argmax())]
                kind, text = ("passage", row.passage_id) if query_known[rows_of.argmax()] else ("query", row.query_id)
                first[reason] = f"{place}: unknown {kind} id '{one_line(text)}'"
        yield from (row for row, good in zip(group, known | missing, strict=True) if good)
    if (unknown_rows := counts[f"unknown_{name}"]) > UNKNOWN_SHARE * total:
        raise InputError(f"{first['dropped']} ({unknown_rows:,} of {total:,} {name} name unknown ids, more than 1 %)")
    if lacking_rows > max(FEW, MISSING_SHARE * measured_rows):
        what = f"{lacking_rows:,} of {measured_rows:,} {name} of dev and test name passages that the corpus lacks"
        raise InputError(f"{first['kept']} ({what}, more than half: the files do not belong together)")


def _free(rows: Iterator[Negative], barred: ById, dropped: Dropped) -> Iterator[Negative]:
    """Yields the rows that may be negatives."""
    while group := list(islice(rows, ROWS)):
        ids = [row.query_id for row in group], [row.passage_id for row in group]
        reason_N = barred.reasons(*ids)
        dropped.count(*ids, reason_N)
        yield from (group[place] for place in free(reason_N))


def _distinct(rows: Iterator[tuple[str, Judgement]], counts: Counter[str], examples: Examples) -> Iterator[Judgement]:
    """Yields each judgement once. Memory grows with the judgements, not with the passages.

    Raises InputError if a query's judgements grade a passage differently.
    """
    counts.update({"duplicate_qrels": 0, "train_relevant": 0, **{f"{split}_qrels": 0 for split in SPLITS}})
    grades: dict[int, int] = {}
    for place, row in rows:
        pair = hash_id(f"{row.query_id} {row.passage_id}")
        if pair in grades:
            if row.relevance != grades[pair]:
                judged = f"passage '{one_line(row.passage_id)}' of query '{one_line(row.query_id)}'"
                raise InputError(f"{place}: {judged} has relevance {row.relevance} here and {grades[pair]} before")
            counts["duplicate_qrels"] += 1
            keep_example(examples, "duplicate_qrels", f"{row.query_id} {row.passage_id}")
            continue
        grades[pair] = row.relevance
        counts[f"{row.split}_qrels"] += 1
        counts["train_relevant"] += row.split == "train" and row.relevance > 0
        yield row


def _check(place: str, kind: str, row_id: str, *texts: str) -> None:
    """Raises InputError for an id that `ids.check_id` rejects, and for text that cannot be encoded as UTF-8."""
    check_id(place, kind, row_id)
    try:
        "".join((row_id, *texts)).encode()
    except UnicodeEncodeError:
        raise InputError(f"{place}: {kind} {row_id!a} holds half of a surrogate pair") from None
