"""DPR's files: psgs_w100.tsv and questions with their contexts."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pipeline.data.collection import SPLITS, Judgement, Negative, Passage, Query, Source
from pipeline.data.readers.cut_documents import cut_documents
from pipeline.data.readers.reader_config import ReaderConfig
from pipeline.data.text import text_files
from pipeline.data.text.delimited import tab_columns
from pipeline.data.text.heading import ANSWERS, DPR, without_heading
from pipeline.data.text.words import blank
from pipeline.errors import InputError
from pipeline.notices import Examples, keep
from pipeline.runtime.work import Progress

OFFICIAL = "https://dl.fbaipublicfiles.com/dpr"
COMMANDS = {
    "psgs_w100.tsv": [f"wget {OFFICIAL}/wikipedia_split/psgs_w100.tsv.gz"],
    **{
        f"biencoder-{name}.json": [f"wget {OFFICIAL}/data/retriever/biencoder-{name}.json.gz"]
        for name in ("nq-train", "nq-dev", "trivia-train", "trivia-dev", "webquestions-train", "webquestions-dev")
    },
    **{
        f"{name}.qa.csv": [f"wget {OFFICIAL}/data/retriever/{name}.qa.csv{ending}"]
        for name, ending in (("nq-dev", ""), ("nq-test", ""), ("trivia-test", ".gz"), ("webquestions-test", ""))
    },
}


class DprConfig(ReaderConfig):
    """Files of DPR's release (Karpukhin et al. 2020), plain or compressed."""

    reader: Literal["dpr"]
    """Selects this reader."""
    passages: Path
    """psgs_w100.tsv (id, text, title; with a header): Wikipedia in passages of 100 words."""
    train: Path | None
    """Questions: .json (question, answers, positive_ctxs, hard_negative_ctxs) or .csv (question, list of answers)."""
    dev: Path | None
    """As `train`."""
    test: Path | None
    """As `train`. DPR publishes test questions as .csv."""


def missing(config: DprConfig) -> list[str]:
    """Returns a line for each absent path, with the commands to download it."""
    return text_files.missing((config.passages, config.train, config.dev, config.test), COMMANDS, folders=False)


def read(config: DprConfig, progress: Progress) -> Source:
    """Reads the files' rows. Consecutive passages with the same title are one document.

    Judgements keep the order of the contexts: DPR trains on the first positive. A query's id is its split and its
    number in the file, such as `train-0`.
    """
    paths = {split: path for split in SPLITS if (path := getattr(config, split))}
    counts: Counter[str] = Counter()
    examples: Examples = {}
    source = Source(
        passages=lambda: _passages(config.passages),
        queries=lambda: _queries(paths, counts, examples),
        qrels=lambda: _qrels(paths),
        negatives=lambda: _negatives(paths),
        counts=counts,
        examples=examples,
    )
    return cut_documents(source, config, judged=bool(paths))


def _passages(path: Path) -> Iterator[tuple[str, Passage]]:
    document, of_title = "", None
    for place, (passage_id, text, title) in without_heading(tab_columns(path, 3), DPR):
        if title != of_title:
            document, of_title = passage_id, title
        yield place, Passage(passage_id, document, title, text)


def _questions(paths: dict[str, Path]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yields (place, split, query id, record)."""
    for split, path in paths.items():
        listed = text_files.plain_name(path).endswith(".json")
        for i, (place, record) in enumerate(text_files.json_list(path) if listed else _answer_lines(path)):
            yield place, split, f"{split}-{i}", record


def _answer_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields lines of (question, Python list of answers) as records."""
    for place, (question, answers) in without_heading(tab_columns(path, 2), ANSWERS):
        try:
            yield place, {"question": question, "answers": ast.literal_eval(answers)}
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # all that literal_eval raises
            raise InputError(f"{place}: the answers are not a list of strings") from None


def _queries(paths: dict[str, Path], counts: Counter[str], examples: Examples) -> Iterator[tuple[str, Query]]:
    counts["unanswered_queries"] = 0
    for place, split, query_id, record in _questions(paths):
        answers = text_files.strings_of(place, record, "answers")
        if split != "train" and all(map(blank, answers)):
            counts["unanswered_queries"] += 1
            keep(examples, "unanswered_queries", query_id)
        yield place, Query(query_id, split, text_files.text_of(place, record, "question"), answers)


def _qrels(paths: dict[str, Path]) -> Iterator[tuple[str, Judgement]]:
    for place, split, query_id, record in _questions(paths):
        for passage_id in _passage_ids(place, record, "positive_ctxs"):
            yield place, Judgement(split, query_id, passage_id, 1)


def _negatives(paths: dict[str, Path]) -> Iterator[tuple[str, Negative]]:
    for place, _, query_id, record in _questions(paths):
        for passage_id in _passage_ids(place, record, "hard_negative_ctxs"):
            yield place, Negative(query_id, passage_id)


def contexts(place: str, record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Returns the passages that a record lists at `key`; empty if absent. Raises InputError for another value."""
    found = record.get(key, [])
    if not isinstance(found, list) or not all(isinstance(context, dict) for context in found):
        raise InputError(f"{place}: field '{key}' is not a list of objects")
    return found


def _passage_ids(place: str, record: dict[str, Any], key: str) -> list[str]:
    """Returns the distinct passage ids of the record's contexts, in order. DPR's key is `passage_id` or `psg_id`."""
    named = (
        (context, "passage_id" if "passage_id" in context else "psg_id") for context in contexts(place, record, key)
    )
    return list(dict.fromkeys(text_files.text_of(place, context, name) for context, name in named))
