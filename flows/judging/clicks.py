"""Writes a collection whose training questions come from a log of searches: clicked passages are the relevant ones."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from artifacts.files import storage_errors
from artifacts.outside import check_outside
from artifacts.store import Store
from flows.judging.folder import CORPUS, json_lines_bytes, qrels_bytes, write_corpus
from flows.serving.engine import check_whole, newest_engine
from pipeline.data.collection import passage_ids
from pipeline.data.qrels import read_qrels
from pipeline.data.search_log import ClickedPair, read_searches, relevant_pairs, texts_of
from pipeline.data.text.same_words import same_words
from pipeline.data.text.text_files import json_lines, text_of
from pipeline.errors import InputError
from pipeline.export.folder import whole
from pipeline.paths import check_new_folder


@dataclass(frozen=True)
class ClickedCollection:
    """What is written of the logs."""

    searches: int
    questions: int
    """Training questions: those with a relevant passage."""
    pairs: int
    """Of a training question and a relevant passage."""
    judged_questions: int
    """Test questions, copied from the judged folder."""
    left_out_judged: int
    """Questions of the log that are test questions."""
    unknown_passages: int
    """Relevant pairs whose passage the collection no longer has."""
    lost_clicks: int
    """Clicks on searches that the logs lack."""
    incomplete_lines: int
    """Lines of the logs that break off."""


def write_clicked(
    out: Path,
    logs: Sequence[Path],
    store: Store,
    recipe: str | None,
    judged: Path | None,
    impressions: int,
    coec: float,
) -> ClickedCollection:
    """Writes `out` in BEIR's layout, completely or not at all: the passages, and the training questions of the logs.

    `judged`: a folder of `cocondenser judge`, whose passages and test questions are taken; its questions train
    nothing. None: the passages of the newest run (of `recipe`). `impressions`, `coec`: see `relevant_pairs`. Raises
    InputError for inputs that cannot be read, if no pair is relevant, and if `out` is neither new nor empty.
    """
    check_new_folder(out, "--out")
    check_outside(out, f"--out {out}")
    searches, lost, incomplete = read_searches(logs)
    texts, pairs = texts_of(searches), relevant_pairs(searches, impressions, coec)
    tests = {} if judged is None else judged_questions(judged)
    test_forms = {same_words(text) for text in tests.values()}
    training = [one for one in pairs if one.question not in test_forms]
    if judged is None:
        engine = newest_engine(store, recipe)
        check_whole(engine.run, engine.part("ingest"))
        known = {*passage_ids(engine.collection)}
    else:
        known = {text_of(place, row, "_id") for place, row in json_lines(judged / CORPUS)}
    kept = [one for one in training if one.passage_id in known]
    if not pairs:
        why = "no question has a passage that its clicks prove relevant; lower --impressions or --coec"
    elif not training:
        why = "all questions with relevant passages are test questions of --judged, which train nothing"
    else:
        why = "the collection has none of the relevant passages: the log is of another collection"
    if not kept:
        raise InputError(f"{logs[0]}: {why}")
    ids = question_ids(kept, tests)
    out.parent.mkdir(parents=True, exist_ok=True)
    with storage_errors(out.parent), whole(out, overwrite=False) as target:
        (target / "qrels").mkdir()
        if judged is None:
            write_corpus(engine.collection, target / CORPUS)
        else:
            shutil.copyfile(judged / CORPUS, target / CORPUS)
            shutil.copyfile(judged / "qrels/test.tsv", target / "qrels/test.tsv")
        rows = [{"_id": query_id, "text": texts[form]} for form, query_id in ids.items()]
        rows += [{"_id": query_id, "text": text} for query_id, text in tests.items()]
        (target / "queries.jsonl").write_bytes(json_lines_bytes(rows))
        graded = [(ids[one.question], one.passage_id, 1) for one in kept]
        (target / "qrels/train.tsv").write_bytes(qrels_bytes(graded))
    return ClickedCollection(
        searches=len(searches),
        questions=len(ids),
        pairs=len(kept),
        judged_questions=len(tests),
        left_out_judged=len(texts.keys() & test_forms),
        unknown_passages=len(training) - len(kept),
        lost_clicks=lost,
        incomplete_lines=incomplete,
    )


def judged_questions(folder: Path) -> dict[str, str]:
    """Returns {id: text} of the test questions of a folder of `judge`. Raises InputError if it has none."""
    for name in (CORPUS, "queries.jsonl", "qrels/test.tsv"):
        if not (folder / name).is_file():
            raise InputError(f"--judged {folder}: {name} does not exist; `cocondenser judge --out {folder}` writes it")
    judged = read_qrels(folder / "qrels/test.tsv")
    rows = json_lines(folder / "queries.jsonl")
    texts = {text_of(place, row, "_id"): text_of(place, row, "text") for place, row in rows}
    return {query_id: text for query_id, text in texts.items() if query_id in judged}


def question_ids(pairs: Sequence[ClickedPair], taken: dict[str, str]) -> dict[str, str]:
    """Returns {words (`same_words`): new id} of the questions of the pairs, in order."""
    ids: dict[str, str] = {}
    number = 0
    for one in pairs:
        while one.question not in ids:
            number += 1
            if (query_id := f"click{number}") not in taken:
                ids[one.question] = query_id
    return ids
