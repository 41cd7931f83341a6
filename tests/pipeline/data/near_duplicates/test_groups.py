"""What ingest does about almost equal passages and questions."""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from pipeline.data import barred
from pipeline.data.ingest import IngestConfig, libraries
from pipeline.data.near_duplicates.groups import FILE, read_groups

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "nrsl"]
RNG = random.Random(0)
TEXTS = [RNG.choices(WORDS, k=60) for _ in range(8)]
KEEP = "keep one of each, or the questions of both in one split"


def near(n: int) -> str:
    """A text that almost equals text `n`."""
    return " ".join([*TEXTS[n][:30], "another", *TEXTS[n][31:]])


PASSAGES = {
    **{f"p{n}": " ".join(text) for n, text in enumerate(TEXTS)},
    "copy": f" {' '.join(TEXTS[1])}",
    "near1": near(1).upper() + "!",
    "near3": near(3),
}
QUESTIONS = {"q1": "What is one?", "q2": "What is two?", "t3": "what is two", "t4": "What is three?"}


def write(folder: Path, qrels: dict[str, list[tuple[str, str]]]) -> dict:
    """A BEIR folder; returns the fields of ingest."""
    (folder / "qrels").mkdir(parents=True)
    rows = {"corpus": PASSAGES, "queries": QUESTIONS}
    for name, texts in rows.items():
        lines = (json.dumps({"_id": row_id, "title": "", "text": text}) for row_id, text in texts.items())
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    for split, pairs in qrels.items():
        judged = [f"{query}\t{passage}\t1" for query, passage in pairs]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return {"reader": "beir", "folder": folder, "document_key": "", "metadata": []}


@pytest.fixture
def fields(tmp_path) -> dict:
    train = [("q1", "p1"), ("q1", "p3"), ("q2", "p2")]
    return write(tmp_path / "set", {"train": train, "test": [("t3", "p2"), ("t4", "near3"), ("t4", "p4")]})


def test_passages_are_grouped_and_counted(fields, ingested):
    result = ingested(**fields, near_duplicates=0.8)
    groups, ids = read_groups(result.folder), [row[0] for row in result.passages]
    pairs = [(ids[row], ids[first]) for row, first in zip(groups.row_U, groups.first_U, strict=True)]
    assert pairs == [("p1", "p1"), ("p3", "p3"), ("copy", "p1"), ("near1", "p1"), ("near3", "p3")]
    assert (result.counts["near_duplicates"], result.counts["near_duplicate_groups"]) == (3, 2)
    assert result.notices == [
        "passages that almost equal an earlier one: 3 (first: copy as p1, near1 as p1, near3 as p3); they are no "
        "negatives of each other, and a search shows the best one; ingest.near_duplicates",
        "dev and test questions that almost equal a training question: 1 (first: t3 of test almost equals q2 of train);"
        " training sees their answers, so figures are too good: remove them from one split",
        "relevant passages of dev and test that almost equal one of training: 1 (first: near3 almost equals p3); "
        f"training sees their texts, so figures may be too good: {KEEP}",
    ]


def test_without_the_field_nothing_is_compared_and_no_byte_changes(fields, ingested):
    without, null = ingested(**fields), ingested(**fields, near_duplicates=None)
    digests = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in result.folder.iterdir()}
        for result in (without, null)
    ]
    assert digests[0] == digests[1]
    assert sorted(digests[0]) == ["ingest.json", "passages.parquet", "qrels.parquet", "queries.parquet"]
    assert not any("near" in name for name in without.counts)
    assert without.notices == []


def test_equal_inputs_give_equal_bytes(fields, ingested):
    one, two = (ingested(**fields, near_duplicates=0.8).folder / FILE for _ in range(2))
    assert one.read_bytes() == two.read_bytes()


def test_groups_say_what_is_no_negative(fields, ingested):
    """Also after the texts were read without them."""
    collection = ingested(**fields, near_duplicates=0.8).folder
    assert reasons(collection, "q1", ["p1", "near1", "near3", "p4"]) == ["judged", "duplicate", "duplicate", ""]
    (collection / FILE).unlink()
    assert reasons(collection, "q1", ["p1", "near1", "near3", "p4"]) == ["judged", "", "", ""]


def reasons(collection: Path, query: str, passages: list[str]) -> list[str]:
    reason_N = barred.by_id(collection).of(query, passages)
    return [barred.REASONS[number] if number != barred.FREE else "" for number in reason_N]


def test_a_passage_that_is_relevant_in_two_splits_is_no_leak(tmp_path, ingested):
    qrels = {"train": [("q1", "p1"), ("q1", "near1")], "dev": [("t4", "p1"), ("t4", "near1"), ("t4", "copy")]}
    (line,) = [
        line for line in ingested(**write(tmp_path / "set", qrels), near_duplicates=0.8).notices if "relevant" in line
    ]
    assert line.startswith("relevant passages of dev and test that almost equal one of training: 1 (first: copy almost")


@pytest.mark.parametrize("qrels", [{}, {"train": [("q1", "p1")]}, {"test": [("q1", "p1"), ("q2", "near1")]}])
def test_without_training_or_test_questions_nothing_leaks(qrels, tmp_path, ingested):
    lines = ingested(**write(tmp_path / "set", qrels), near_duplicates=0.8).notices
    assert not [line for line in lines if "training" in line]


@pytest.mark.parametrize("wrong", [0.4, 1.1, True, "yes", np.nan])
def test_a_wrong_similarity_is_refused(fields, wrong):
    with pytest.raises(ValidationError, match="near_duplicates"):
        TypeAdapter(IngestConfig).validate_python({**fields, "near_duplicates": wrong})


def test_the_library_is_part_of_the_key_only_if_it_computes(fields):
    for value, expected in ((None, ()), (0.8, ("datasketch",))):
        config = TypeAdapter(IngestConfig).validate_python({**fields, "near_duplicates": value})
        assert libraries(config) == expected
