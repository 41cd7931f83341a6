"""Reads the user's own texts in several formats, and generates questions from them if requested."""

import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, get_args

from pipeline.data.collection import Judgement, Passage, Query, Source
from pipeline.data.documents import passage_id
from pipeline.data.ids import hash_id
from pipeline.data.readers.folder import documents_of, list_files
from pipeline.data.readers.questions import GeneratedQuestions, asking, generate_questions, split_of
from pipeline.data.readers.sections import Document, comparable_words
from pipeline.data.readers.text_config import Kind, TextConfig
from pipeline.data.text import text_files
from pipeline.formatting import counted
from pipeline.notices import Examples, keep
from pipeline.runtime.work import Progress

Documents = Callable[[], Iterator[tuple[str, Document]]]
"""Starts a stream of (place, document)."""
PlacedQuestion = tuple[str, Query, list[str]]
"""Place, question, and the ids of the passages, or of the document, that answer it."""


def missing(config: TextConfig) -> list[str]:
    """Returns a line for an absent path, with its field."""
    expected = "ingest.path takes a file or folder of texts"
    return [f"{line}; {expected} (--set ingest.path=FOLDER)" for line in text_files.missing([config.path], {})]


def sources(config: TextConfig) -> dict[str, Path]:
    """Returns a single file under its name: the name determines ids, titles and the parser, so it enters the key."""
    return {f"path/{config.path.name}": config.path} if config.path.is_file() else {}


def read(config: TextConfig, progress: Progress) -> Source:
    """Reads the documents' passages, in the order of file names and lines, and generates questions from them.

    A document's id is the file's name in the folder, followed by the document's number if lines are documents; its
    i-th passage is `ID#i`, its questions are `ID?KIND:PLACE`. So a change of one file changes no id or split of others.
    Files of a folder that cannot be read are skipped and counted. A text that occurs in several places is not used as a
    question. Too few questions give a notice. Memory: one document, and the questions.
    """
    listing = list_files(config)
    documents: Documents = partial(documents_of, listing)
    repeated: set[int] = set()
    questions: list[PlacedQuestion] = []
    notices: list[str] = []
    if config.questions or listing.converts():
        documents = spooled(_with_progress(documents(), progress))  # parsed once, read several times
    if config.questions:
        seen: Counter[int] = Counter()
        for _, found in documents():
            seen.update(map(_hash, asking(found, config)))
        repeated.update(text for text, times in seen.items() if times > 1)
        questions, notices = _questions(documents, config, repeated, listing.counts, listing.examples)
    return Source(
        passages=lambda: _passages(documents, config, repeated),
        queries=lambda: ((place, query) for place, query, _ in questions),
        qrels=lambda: (
            (place, Judgement(query.split, query.query_id, answer, 1))
            for place, query, answers in questions
            for answer in answers
        ),
        counts=listing.counts,
        examples=listing.examples,
        notices=notices,
        judges_documents=config.judgements == "documents" and bool(config.questions),
    )


def _with_progress(documents: Iterator[tuple[str, Document]], progress: Progress) -> Iterator[tuple[str, Document]]:
    for done, found in enumerate(documents, 1):
        progress(done, None, "documents")
        yield found


def _generate(
    documents: Documents, config: TextConfig, repeated: set[int]
) -> Iterator[tuple[str, Document, GeneratedQuestions]]:
    for place, found in documents():
        yield place, found, generate_questions(found, config, lambda text: _hash(text) in repeated)


def _passages(documents: Documents, config: TextConfig, repeated: set[int]) -> Iterator[tuple[str, Passage]]:
    for place, found, generated in _generate(documents, config, repeated):
        for i, (title, text) in enumerate(generated.passages):
            passage, document = passage_id(found.document_id, i), found.document_id
            yield place, Passage(passage, document, title, text, found.metadata, document)


def _questions(
    documents: Documents, config: TextConfig, repeated: set[int], counts: Counter[str], examples: Examples
) -> tuple[list[PlacedQuestion], list[str]]:
    """Returns all questions, and a notice if there are none to train on or to evaluate with.

    Adds crops that occur in several passages to `repeated`, and updates `counts`.
    """
    candidates: list[tuple[str, PlacedQuestion]] = []
    seen: Counter[int] = Counter()
    total, left_out = 0, Counter({"saying_nothing": 0, "repeated": 0, "without_rest": 0})
    for place, found, generated in _generate(documents, config, repeated):
        total += 1
        for reason, question_id in generated.left_out:
            left_out[reason] += 1
            keep(examples, f"{reason}_left_out", question_id)
        split = split_of(found.document_id, config)
        seen.update(_hash(question.text) for question in generated.questions if question.kind == "crops")
        for question in generated.questions:
            answers = [passage_id(found.document_id, i) for i in question.passages]
            if config.judgements == "documents":
                answers = [found.document_id]
            query = Query(question.question_id, split, question.text, [])
            candidates.append((question.kind, (place, query, answers)))
    repeated.update(text for text, times in seen.items() if times > 1)
    chosen = []
    for kind, row in candidates:
        if kind == "crops" and _hash(row[1].text) in repeated:
            left_out["repeated"] += 1
            keep(examples, "repeated_left_out", row[1].query_id)
        else:
            chosen.append((kind, row))

    per_kind = Counter(kind for kind, _ in chosen)
    counts.update({f"questions_from_{kind}": per_kind[kind] for kind in config.questions})
    counts.update({f"{reason}_left_out": number for reason, number in left_out.items()})
    splits = Counter(query.split for _, (_, query, _) in chosen)
    with_questions = {query.query_id.rpartition("?")[0] for _, (_, query, _) in chosen}
    return [row for _, row in chosen], _lacking(config, total, len(with_questions), splits, left_out)


def _lacking(
    config: TextConfig, documents: int, with_questions: int, splits: Counter[str], left_out: Counter[str]
) -> list[str]:
    """Returns a line if there are no questions to train on, or none to evaluate with although the shares ask for some.

    Stages that need them refuse the collection; an existing model is searched without them.
    """
    of = f"of {counted(documents, 'documents')}"
    if not splits:
        why = ", ".join(f"{number} {reason.replace('_', ' ')}" for reason, number in left_out.items())
        kinds = ", ".join(config.questions)
        return [f"no questions from ingest.questions [{kinds}], {of} ({why}); {_further(config, 1, documents)}"]
    held_out = splits["dev"] + splits["test"]
    if splits["train"] and (held_out or config.dev_share + config.test_share == 0):
        return []
    if with_questions == 1:  # no shares divide it
        questions = counted(splits.total(), "questions")
        return [
            f"only 1 {of} has questions ({questions}), so that none is left to train on or to evaluate with; "
            f"{_further(config, 2, documents)}"
        ]
    return [
        f"ingest.dev_share, test_share and seed leave {counted(splits['train'], 'questions')} to train on and "
        f"{held_out:,} to evaluate with, {of}; change them for other numbers"
    ]


def _further(config: TextConfig, needed: int, documents: int) -> str:
    """Returns advice for too few documents with questions. `needed`: the required number of them."""
    others = [kind for kind in get_args(Kind) if kind not in config.questions]
    if documents >= needed and others:
        return f"other kinds in ingest.questions may find more ({', '.join(others)})"
    return "add documents for more"


def _hash(text: str) -> int:
    return hash_id(comparable_words(text))


Item = TypeVar("Item")


def spooled(items: Iterable[Item]) -> Callable[[], Iterator[Item]]:
    """Keeps `items`, which are costly to compute, in a temporary file, and returns a function that starts a stream of
    them. Memory: one item.

    The file is deleted with the function. It is pickled, which is safe because it has no name, so that no other process
    can write it. JSON took 0.8 s instead of 0.5 s to write 10,000 documents of 8 sections, the same to read, and does
    not restore tuples.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the streams read it)
    total = 0
    for item in items:
        pickle.dump(item, file, pickle.HIGHEST_PROTOCOL)
        total += 1

    def stream() -> Iterator[Item]:
        place = 0
        for _ in range(total):
            file.seek(place)  # another stream may have read in between
            item = pickle.load(file)
            place = file.tell()
            yield item

    return stream
