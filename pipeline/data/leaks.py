"""Questions that occur in train and in dev or test under two ids: training sees their answers."""

from array import array
from pathlib import Path

import numpy as np

from pipeline.data.barred import same_words
from pipeline.data.collection import ROWS, at_rows
from pipeline.data.ids import hash_id
from pipeline.data.stored import read_batches
from pipeline.notices import notice


def leaks(collection: Path) -> list[str]:
    """A notice where a question of dev or test has the words of a training question (see `same_words`).

    Memory: 9 bytes a question, and the ids of those that the notice is about.
    """
    path, words, trains = collection / "queries.parquet", array("Q"), array("b")
    for batch in read_batches(path, ["split", "text"], ROWS):
        trains.extend(split == "train" for split in batch["split"].to_pylist())
        words.extend(hash_id(same_words(text)) for text in batch["text"].to_pylist())
    words_Q, trains_Q = np.frombuffer(words, np.uint64), np.frombuffer(trains, np.bool_)
    rows = np.flatnonzero(np.isin(words_Q, np.intersect1d(words_Q[trains_Q], words_Q[~trains_Q])))
    if not len(rows):
        return []
    columns = at_rows(path, rows, ["query_id", "split"]).to_pydict()
    asked = list(zip(words_Q[rows].tolist(), *columns.values(), strict=True))
    first = {hashed: query_id for hashed, query_id, split in reversed(asked) if split == "train"}
    held_out = (row for row in asked if row[2] != "train")
    found = [f"{query_id} of {split} is {first[hashed]} of train" for hashed, query_id, split in held_out]
    advice = "training sees their answers, so figures are too good: leave them out of one split"
    return [notice("dev and test questions that train asks too", len(found), found, advice)]
