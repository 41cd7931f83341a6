"""BEIR folders: corpus.jsonl, queries.jsonl, qrels/{train,dev,test}.tsv, each plain or compressed."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Literal

from pipeline.data.collection import SPLITS, Judgement, Passage, Query, Source
from pipeline.data.metadata import Names
from pipeline.data.qrels import grade, require_rows
from pipeline.data.readers.cut_documents import cut_documents
from pipeline.data.readers.reader_config import ReaderConfig
from pipeline.data.readers.unread import unread
from pipeline.data.text import text_files
from pipeline.data.text.heading import QRELS, without_heading
from pipeline.errors import InputError
from pipeline.notices import Examples, keep, one_line
from pipeline.paths import absolute_path
from pipeline.runtime.work import Progress

ARCHIVES = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"
# fmt: off
NAMES = {
    "arguana", "climate-fever", "dbpedia-entity", "fever", "fiqa", "hotpotqa", "msmarco", "nfcorpus", "nq", "quora",
    "scidocs", "scifact", "trec-covid", "webis-touche2020",
}
# fmt: on
"""Datasets available there; the archive and the folder inside have the dataset's name."""


class BeirConfig(ReaderConfig):
    """A folder in the layout of BEIR (Thakur et al. 2021, section 3)."""

    reader: Literal["beir"]
    """Selects this reader."""
    folder: Path
    """Holds corpus.jsonl, queries.jsonl and qrels/, each file plain or with .gz, .xz or .zst."""
    document_key: str
    """Key of corpus.jsonl with the id of a passage's document, such as `doc`. Empty: each passage is a document."""
    metadata: Names
    """Further keys of corpus.jsonl, or of the object `metadata` in its lines, to keep and filter by. Empty: none."""


def missing(config: BeirConfig) -> list[str]:
    """Returns a line for each absent path, with the commands to download it."""
    folder = config.folder
    if not folder.is_dir():
        name, parent = folder.name, quote(str(folder.parent))
        how = f": wget -P {parent} {ARCHIVES}/{name}.zip && unzip {parent}/{name}.zip -d {parent}"
        return [f"ingest.folder: {absolute_path(folder)} is not a folder{how if name in NAMES else ''}"]
    try:
        judged = qrels_files(folder)
    except InputError as error:
        return [str(error)]
    found = {
        folder / name: text_files.find(folder, name)
        for name in ("corpus.jsonl", *(["queries.jsonl"] if (folder / "qrels").is_dir() else []))
    }
    absent = [
        f"{absolute_path(plain)} does not exist, plain or compressed" for plain, path in found.items() if path is None
    ]
    return absent + text_files.missing([*found.values(), *judged.values()], {}, folders=False)


def read(config: BeirConfig, progress: Progress) -> Source:
    """Reads the folder's rows. A query without judgements has no split; it is left out and counted.

    Also left out and counted: files with other names, in the folder and in qrels/, and the second of a plain and a
    compressed copy. A folder without qrels/ is a collection for pre-training.
    """
    folder = config.folder
    corpus = text_files.find(folder, "corpus.jsonl") or folder / "corpus.jsonl"
    questions = text_files.find(folder, "queries.jsonl") or folder / "queries.jsonl"
    qrels = qrels_files(folder)
    counts: Counter[str] = Counter()
    examples: Examples = {}
    for name in unread(folder, [corpus, *qrels.values(), *([questions] if qrels else [])], ("*", "qrels/*")):
        counts["unnamed_files"] += 1
        keep(examples, "unnamed_files", name)
    source = Source(
        passages=lambda: _passages(corpus, config.document_key),
        queries=lambda: _queries(questions, qrels, counts, examples) if qrels else iter(()),
        qrels=lambda: _qrels(qrels),
        counts=counts,
        examples=examples,
    )
    return cut_documents(source, config, judged=bool(qrels))


def qrels_files(folder: Path) -> dict[str, Path]:
    """Returns {split: file of judgements}; empty if qrels/ is absent or empty.

    Raises InputError if qrels/ is not a folder, cannot be read or holds only other files.
    """
    qrels = folder / "qrels"
    if not os.path.lexists(qrels):
        return {}
    names = ", ".join(f"{split}.tsv" for split in SPLITS)
    try:
        files = os.listdir(qrels)
    except OSError as error:
        raise InputError(
            f"{qrels}: a folder with {names} is expected, but it cannot be read: {error.strerror}"
        ) from None
    found = {split: path for split in SPLITS if (path := text_files.find(qrels, f"{split}.tsv"))}
    if files and not found:
        raise InputError(f"{qrels}: holds none of {names}; without judgements, remove this folder")
    return found


def _passages(path: Path, document_key: str) -> Iterator[tuple[str, Passage]]:
    for place, row in text_files.json_lines(path):
        document = text_files.text_of(place, row, document_key) if document_key else ""
        title = text_files.text_of(place, row, "title", required=False)
        text = text_files.text_of(place, row, "text")
        inner = row.get("metadata")
        further = inner | row if isinstance(inner, dict) else row
        yield place, Passage(text_files.text_of(place, row, "_id"), document, title, text, further)


def _queries(
    path: Path, qrels: dict[str, Path], counts: Counter[str], examples: Examples
) -> Iterator[tuple[str, Query]]:
    """Yields the queries with the split of the qrels file that judges them. Memory grows with the judged queries."""
    splits: dict[str, str] = {}
    for place, judgement in _qrels(qrels):
        if splits.setdefault(judgement.query_id, judgement.split) != judgement.split:
            raise InputError(
                f"{place}: query '{one_line(judgement.query_id)}' is already judged in {splits[judgement.query_id]}.tsv"
            )
    counts["unjudged_queries"] = 0
    examples.pop("unjudged_queries", None)
    for place, row in text_files.json_lines(path):
        query_id = text_files.text_of(place, row, "_id")
        if query_id not in splits:
            counts["unjudged_queries"] += 1
            keep(examples, "unjudged_queries", query_id)
            continue
        answers = text_files.strings_of(place, row, "answers")
        yield place, Query(query_id, splits[query_id], text_files.text_of(place, row, "text"), answers)


def _qrels(paths: dict[str, Path]) -> Iterator[tuple[str, Judgement]]:
    return (row for split, path in paths.items() for row in require_rows(path, _judgements(split, path)))


def _judgements(split: str, path: Path) -> Iterator[tuple[str, Judgement]]:
    for place, (query_id, passage_id, score) in without_heading(text_files.columns(path, 3), QRELS):
        yield place, Judgement(split, query_id, passage_id, grade(place, score))
