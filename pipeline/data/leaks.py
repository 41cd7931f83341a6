"""Dev and test data that training has too: notices of ingest.

Shapes: Q questions, T rows of training, H held-out rows (dev and test), L leaked ones.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.data.collection import ROWS, SPLITS, at_rows
from pipeline.data.ids import hash_id
from pipeline.data.judged import read_questions
from pipeline.data.near_duplicates.groups import Groups, read_groups
from pipeline.data.near_duplicates.minhash import find_groups
from pipeline.data.stored import read_batches
from pipeline.data.text.same_words import same_words
from pipeline.notices import EXAMPLES, notice

REMOVE = "training sees their answers, so figures are too good: remove them from one split"
KEEP = "training sees their texts, so figures may be too good: keep one of each, or the questions of both in one split"


def leaks(collection: Path, similarity: float | None) -> list[str]:
    """Returns a notice for each kind of dev and test data that training has too: questions with the words of a training
    question (see `same_words`) and, if `similarity` is set, what almost equals a question or a positive of training.

    Memory: about 40 bytes per question; with `similarity` also that of `find_groups` for the questions and of
    `read_questions`.
    """
    questions, trains, words = collection / "queries.parquet", array("b"), array("Q")
    for batch in read_batches(questions, ["split", "text"], ROWS):
        trains.extend(split == "train" for split in batch["split"].to_pylist())
        words.extend(hash_id(same_words(text)) for text in batch["text"].to_pylist())
    trains_Q = np.frombuffer(trains, np.bool_)
    train_T, held_H = np.flatnonzero(trains_Q), np.flatnonzero(~trains_Q)
    same_L2 = leaked(_equal(np.frombuffer(words, np.uint64)), train_T, held_H)
    lines = _notice("dev and test questions that are training questions too", same_L2, "is", questions, REMOVE)
    if similarity is not None and len(train_T) and len(held_H):
        near_L2 = leaked(
            find_groups(lambda: _texts(questions), similarity), train_T, np.setdiff1d(held_H, same_L2[:, 0])
        )
        what = "dev and test questions that almost equal a training question"
        lines += _notice(what, near_L2, "almost equals", questions, REMOVE)
        near_L2, passages = _near_passages(collection, read_groups(collection)), collection / "passages.parquet"
        what = "relevant passages of dev and test that almost equal one of training"
        lines += _notice(what, near_L2, "almost equals", passages, KEEP)
    return lines


def leaked(groups: Groups, train_T: np.ndarray, held_H: np.ndarray) -> np.ndarray:
    """Returns (held-out row, first training row of its group) of each held-out row with one, int64 [L, 2]. No row is in
    both.
    """
    if not len(train_T):
        return np.zeros((0, 2), np.int64)
    known, place = np.unique(groups.first(train_T), return_index=True)
    first_H = groups.first(held_H)
    place_H = np.searchsorted(known, first_H).clip(max=len(known) - 1)
    found_H = known[place_H] == first_H
    return np.stack([held_H[found_H], train_T[place[place_H[found_H]]]], axis=1)


def _equal(hash_Q: np.ndarray) -> Groups:
    _, first, group_Q = np.unique(hash_Q, return_index=True, return_inverse=True)
    return Groups(np.arange(len(hash_Q)), first[group_Q])


def _texts(questions: Path) -> Iterator[list[str]]:
    return (batch["text"].to_pylist() for batch in read_batches(questions, ["text"], ROWS))


def _near_passages(collection: Path, groups: Groups) -> np.ndarray:
    """Returns the leaked relevant passages of dev and test. A passage that is relevant in both is no leak: many
    collections have the same passages in all splits.
    """
    train_T, *held = (np.unique(read_questions(collection, split).lists.flat).astype(np.int64) for split in SPLITS)
    return leaked(groups, train_T, np.setdiff1d(np.concatenate(held), train_T))


def _notice(what: str, leaked_L2: np.ndarray, how: str, table: Path, advice: str) -> list[str]:
    """Returns a line if there are leaks. `table`: of questions, or of passages."""
    if not len(leaked_L2):
        return []
    held, train = (_named(table, row_L[:EXAMPLES]) for row_L in leaked_L2.T)
    return [
        notice(what, len(leaked_L2), [f"{one} {how} {other}" for one, other in zip(held, train, strict=True)], advice)
    ]


def _named(table: Path, row_L: np.ndarray) -> list[str]:
    """Returns the ids of rows; of questions with their split."""
    if table.stem == "passages":
        return at_rows(table, row_L, ["passage_id"])["passage_id"].to_pylist()
    rows = at_rows(table, row_L, ["query_id", "split"]).to_pylist()
    return [f"{row['query_id']} of {row['split']}" for row in rows]
