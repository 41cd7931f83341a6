"""Questions that occur in train and in dev or test under two ids: training sees their answers."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.barred import same_words
from pipeline.collection import ROWS
from pipeline.ids import hash_id
from pipeline.notices import notice
from pipeline.stored import read_batches


def leaks(collection: Path) -> list[str]:
    """A notice where a question of dev or test has the words of a training question (see `same_words`).

    Memory grows with the questions of dev and test.
    """
    held_out = {hashed for _, split, hashed in _questions(collection) if split != "train"}
    trained: dict[int, str] = {}
    for query_id, split, hashed in _questions(collection) if held_out else ():
        if split == "train" and hashed in held_out:
            trained.setdefault(hashed, query_id)
    found = [
        f"{query_id} of {split} is {trained[hashed]} of train"
        for query_id, split, hashed in (_questions(collection) if trained else ())
        if split != "train" and hashed in trained
    ]
    advice = "training sees their answers, so figures are too good: leave them out of one split"
    return [notice("dev and test questions that train asks too", len(found), found, advice)] if found else []


def _questions(collection: Path) -> Iterator[tuple[str, str, int]]:
    """(id, split, hash of its words) of each question."""
    for batch in read_batches(collection / "queries.parquet", ["query_id", "split", "text"], ROWS):
        for query_id, split, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield query_id, split, hash_id(same_words(text))
