"""Training questions that a language model writes for the collection's passages: the stage.

The artifact is a collection: the same passages, dev and test questions, and other training questions. Questions of all
passages are written, as in InPars, Promptagator and GPL: who searches a collection knows its texts, not what people
will ask. No question of dev or test is used again: one with the same words is left out.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.data import metadata
from pipeline.data.collection import ROWS, read_queries, schemas, write_table
from pipeline.data.documents import are_cut, judged_id
from pipeline.data.ids import check_id, hash_id
from pipeline.data.near_duplicates import groups
from pipeline.data.stored import input_error_on_read, read_batches, read_json
from pipeline.data.text.same_words import same_words
from pipeline.errors import InputError
from pipeline.formatting import counted
from pipeline.generate.answer_store import AnswerStore
from pipeline.generate.answers import read_answer
from pipeline.generate.config import UNREAD, GenerateConfig
from pipeline.generate.local_model import check_architecture
from pipeline.generate.prompts import read_examples
from pipeline.generate.requests import FILES, Requests, model_folder, read_requests
from pipeline.generate.writing import get_answers
from pipeline.language_model.endpoint import read_key
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.notices import Examples, keep, noticed, of_counts
from pipeline.runtime import hub, network
from pipeline.runtime.work import Metrics, Work

COPIED_FILES = ("passages.parquet", metadata.FILE, groups.FILE)
"""Files that are those of the collection, where it has them."""
SECONDS = 3.0
"""How long a server is waited for before a run starts."""
LEFT_OUT = {
    "empty": "answers without a question",
    "control_characters": "with control characters",
    "markup": "with markup",
    "no_question": "that are no question",
    "too_short": "that are too short",
    "too_long": "that are too long",
    "repeating": "that repeat themselves",
    "copied": "copied from their passage",
    "several_passages": "written for several passages",
    "asked_already": "that the collection has already",
    "not_found": "whose passage the search does not find",
}
"""{reason: the questions that are left out}, in the order of the checks."""


class Written(NamedTuple):
    """A usable question."""

    query_id: str
    text: str
    row: int
    """Of its passage."""
    passage_id: str


def unread(config: GenerateConfig) -> tuple[str, ...]:
    """Returns the fields that change no question."""
    return UNREAD


def libraries(config: GenerateConfig) -> tuple[str, ...]:
    """Returns the libraries whose versions change the bytes: a local model's, and those of the round trip."""
    local = ("transformers",) if config.endpoint is None else ()
    return (*local, *(("pyserini", "tokenizers") if config.round_trip is not None else ()))


def missing(config: GenerateConfig) -> list[str]:
    """Returns a line for an absent model, an unreadable example or key, and a server that does not answer."""
    try:
        if config.examples is None or config.examples.exists():
            read_examples(config.examples)
        if config.checkpoint is not None and config.checkpoint.exists():
            check_architecture(config.checkpoint)
        if config.endpoint is None:
            return hub.missing(config.pretrained, config.revision, FILES, "generate.checkpoint")
        network.check_usable(f"generate.endpoint {config.endpoint}")
        read_key(config, os.environ)
    except InputError as error:
        return [str(error)]
    if not network.answers(config.endpoint, SECONDS):
        return [f"generate.endpoint: {config.endpoint} does not answer: is the address right, and the server started?"]
    return []


def generate(
    config: GenerateConfig,
    collection: Path,
    bm25: Path | None,
    checkpoint: Path | None,
    index: Path | None,
    work: Work,
    encoder: EncoderConfig | None = None,
) -> Metrics:
    """Writes the collection with the new training questions.

    `bm25`: None without a round trip. `checkpoint`, `index` and `encoder`: of the model that the round trip fuses with
    BM25; None: BM25 alone. Metrics: the collection's counts, the numbers of requests, tokens and questions, and how
    many questions are left out for which reason. Raises InputError if no question is left, and as `get_answers` does.
    """
    folder = model_folder(config)
    requests = read_requests(config, collection, folder)
    answers = work.kept if work.kept is not None else work.checkpoints
    sent = get_answers(config, requests, folder, answers, work)
    counts: Counter[str] = Counter()
    examples: Examples = {}
    questions = usable(read_written(requests, answers, counts, examples), collection, counts, examples)
    if bm25 is not None:
        questions = found_again(config, questions, collection, bm25, checkpoint, index, encoder, work, counts, examples)
    if not questions:
        why = ", ".join(f"{number:,} {LEFT_OUT[reason]}" for reason, number in counts.items() if number)
        raise InputError(
            f"generate: no question is left of {len(requests):,} answers ({why or 'no passage is long enough'})"
        )
    metrics = write_collection(config, collection, questions, work.out)
    lines = of_counts(
        {reason: (f"generated questions left out, {text}", "") for reason, text in LEFT_OUT.items()}, counts, examples
    )
    passages = len({one.row for one in questions})
    cost = "" if sent.cost is None else f", cost {sent.cost:.2g}"
    written = f"{counted(len(questions), 'questions')} written for {counted(passages, 'passages')}, "
    written += f"{counted(sent.answered + sent.failed, 'requests')} sent{cost}"
    return {
        **metrics,
        "generated_questions": len(questions),
        **sent.metrics(),
        **{f"left_out_{reason}": counts[reason] for reason in LEFT_OUT},
        **noticed([written, *sent.notices(), *lines]),
    }


def read_written(requests: Requests, answers: Path, counts: Counter[str], examples: Examples) -> Iterator[Written]:
    """Yields the questions of all stored answers, and counts the lines that are none."""
    with AnswerStore(answers) as store:
        for request in requests:
            answer = store.get(request.key)
            if answer is None:
                continue
            reading = read_answer(answer.text, request.kind, request.text, requests.config.questions)
            counts.update(reading.left_out)
            for reason in reading.left_out:
                keep(examples, reason, request.passage_id)
            for number, text in enumerate(reading.questions):
                yield Written(f"{request.passage_id}?{request.kind}:{number}", text, request.row, request.passage_id)


def usable(written: Iterable[Written], collection: Path, counts: Counter[str], examples: Examples) -> list[Written]:
    """Returns the questions of one passage alone, and once, that are no question of the collection."""
    known = {hash_id(same_words(query.text)) for query in read_queries(collection)}
    by_words: dict[int, list[Written]] = {}
    for question in written:
        by_words.setdefault(hash_id(same_words(question.text)), []).append(question)
    chosen = []
    for words, same in by_words.items():
        several = any(one.row != same[0].row for one in same)
        reason = "several_passages" if several else "asked_already" if words in known else ""
        if reason:
            counts[reason] += 1
            keep(examples, reason, same[0].text)
        else:
            chosen.append(same[0])
    return chosen


def found_again(
    config: GenerateConfig,
    questions: Sequence[Written],
    collection: Path,
    bm25: Path,
    checkpoint: Path | None,
    index: Path | None,
    encoder: EncoderConfig | None,
    work: Work,
    counts: Counter[str],
    examples: Examples,
) -> list[Written]:
    """Returns the questions whose passage is among the first `round_trip_depth` of the search."""
    import numpy as np
    import pyarrow as pa

    from pipeline.data.parquet import write_parquet
    from pipeline.runtime.launch import ENCODING, launch, one_process, without_model

    work.checkpoints.mkdir(parents=True, exist_ok=True)
    table, ranks = work.checkpoints / "questions.parquet", work.checkpoints / "ranks.npy"
    columns = {
        "text": pa.array([one.text for one in questions], pa.string()),
        "row": pa.array([one.row for one in questions], pa.int64()),
    }
    write_parquet(pa.table(columns), table)
    arguments = {
        "questions": str(table),
        "depth": config.round_trip_depth,
        "collection": str(collection),
        "bm25": str(bm25),
        "encoder": {} if encoder is None else encoder.model_dump(mode="json"),
        "checkpoint": str(checkpoint) if checkpoint is not None else None,
        "index": str(index) if index is not None else None,
        "token_budget": work.machine.token_budget,
        "out": str(ranks),
    }
    machine = without_model(work.machine) if checkpoint is None else one_process(work.machine)
    with work.gpu_turn() if checkpoint is not None else nullcontext():
        launch("pipeline.generate.round_trip:search", arguments, machine, work.progress, work.checkpoints, ENCODING)
    found_Q = np.load(ranks) > 0
    for question in (one for one, found in zip(questions, found_Q, strict=True) if not found):
        counts["not_found"] += 1
        keep(examples, "not_found", question.text)
    return [one for one, found in zip(questions, found_Q, strict=True) if found]


def write_collection(config: GenerateConfig, collection: Path, questions: Sequence[Written], out: Path) -> Metrics:
    """Writes the collection with `questions` for training, after its own if they are kept. Returns its counts."""
    for name in COPIED_FILES:
        if (collection / name).exists():
            with input_error_on_read(collection / name):
                shutil.copyfile(collection / name, out / name)
    tables, judged = schemas(are_cut(collection)), judged_id(collection)
    known = {query.query_id for query in read_queries(collection)}
    for question in questions:
        check_id(f"generate: passage {question.passage_id}", "query", question.query_id)
        if question.query_id in known:
            raise InputError(
                f"generate: the collection has a question with the id {question.query_id} of a generated one"
            )
    own = [row for row in _rows(collection, "queries") if config.keep_questions or row["split"] != "train"]
    judgements = [row for row in _rows(collection, "qrels") if config.keep_questions or row["split"] != "train"]
    counts: Counter[str] = Counter()
    counts["queries"] = write_table(
        out / "queries.parquet",
        tables["queries"],
        [*(tuple(row.values()) for row in own), *((one.query_id, "train", one.text, []) for one in questions)],
    )
    counts["qrels"] = write_table(
        out / "qrels.parquet",
        tables["qrels"],
        [
            *(tuple(row.values()) for row in judgements),
            *(("train", one.query_id, judged(one.passage_id), 1) for one in questions),
        ],
    )
    counts["train_queries"] = len(questions) + sum(row["split"] == "train" for row in own)
    counts["train_qrels"] = len(questions) + sum(row["split"] == "train" for row in judgements)
    counts["train_relevant"] = len(questions) + sum(
        row["split"] == "train" and row["relevance"] > 0 for row in judgements
    )
    metrics: Metrics = read_json(collection / "ingest.json") | counts
    (out / "ingest.json").write_text(json.dumps(metrics, indent=1, sort_keys=True) + "\n")
    return metrics


def _rows(collection: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table, with its columns in the order of the schema."""
    for batch in read_batches(collection / f"{name}.parquet", None, ROWS):
        yield from batch.to_pylist()
