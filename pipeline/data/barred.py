"""Passages that cannot be negatives of a question ("barred" ones): one rule for all sources of negatives.

    judged      the passage is judged relevant for the question, or it is one of a document that is; of documents that
                are cut, those that are the question itself are left out under this name too
    duplicate   the passage has exactly the text of a judged one, apart from white space at both ends, or almost equals
                it (data/near_duplicates/groups.py); a passage without text is compared by its title
    question    the passage is the question itself: it has the question's id (BEIR's `ignore_identical_ids`) or the
                same words, ignoring case, white space and Unicode form

The first that applies is the reason. Texts are compared by 64-bit hashes (see data/ids.py). Pairs are never listed:
one text may be the positive of a thousand questions and have a hundred thousand copies.

Shapes: n questions, P passages of the collection, J positives, C distinct texts of each question's positives.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.data.collection import passage_batches
from pipeline.data.documents import read_documents
from pipeline.data.ids import hash_id
from pipeline.data.near_duplicates.groups import FILE, read_groups
from pipeline.data.stored import input_error_on_read, read_table
from pipeline.data.text.same_words import same_words
from pipeline.notices import EXAMPLES, notice

if TYPE_CHECKING:
    from pipeline.data.judged import Judged

REASONS = ("judged", "duplicate", "question")
DESCRIPTIONS = {
    "judged": "judged relevant",
    "duplicate": "copies of a positive",
    "question": "the question itself",
    "repeated": "listed again",
    "other_split": "of dev and test questions",
    "unknown": "with unknown ids",
    "margin": "which score too close to the positive",
}
"""Texts for these reasons and for those of negatives/from_file.py and negatives/mine.py."""
FREE = -1
"""Instead of a reason: the passage may be a negative of the question."""
NO_PAIR = np.iinfo(np.int64).max


class Texts(NamedTuple):
    """Hashes of each passage's text and of its words, uint64 [P]: 16 bytes per passage.

    Almost equal texts have the hash of the first one.
    """

    text_P: np.ndarray
    words_P: np.ndarray


class Barred(NamedTuple):
    """The barred passages of n questions.

    Keys (see `pair_keys`) are ascending and distinct; NO_PAIR follows them, so that every search ends at an entry.
    """

    judged_J: np.ndarray
    """Keys of each question and its positives. int64."""
    copied_C: np.ndarray
    """Keys of each question and the texts of its positives. int64."""
    text_P: np.ndarray
    """Index of each passage's text among the texts of positives; -1: not among them. int32."""
    words_n: np.ndarray
    """Index of each question's words. int32."""
    words_P: np.ndarray
    """Index of each passage's words among those of the questions; -1: not among them. int32."""
    own_n: np.ndarray
    """Row of the passage that has the question's id; -1: none. int64."""


def read_texts(collection: Path) -> Texts:
    """Reads the passages once. Memory: a batch of texts, and 16 bytes per passage.

    The result for the last collection is cached: the stages of a run follow each other in one process.
    """
    path = collection / "passages.parquet"
    with input_error_on_read(path):
        stats = [path.stat(), *(found.stat() for found in collection.glob(FILE))]
    states = ((stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats)
    return _read_texts(collection, tuple(states))


@lru_cache(maxsize=1)
def _read_texts(collection: Path, states: tuple[tuple[int, ...], ...]) -> Texts:
    """`states`: identify the files' versions; changed files are read again."""
    text, words = array("Q"), array("Q")
    for batch in passage_batches(collection, ["title", "text"]):
        for content in map(content_of, *batch.values()):
            text.append(hash_id(content))
            words.append(hash_id(same_words(content)))
    text_P, groups = np.frombuffer(text, np.uint64), read_groups(collection)
    text_P[groups.row_U] = text_P[groups.first_U]
    return Texts(text_P, np.frombuffer(words, np.uint64))


def content_of(title: str, text: str) -> str:
    """Returns what is compared of a passage: its text, or its title if there is none."""
    return text.strip() or title.strip()


def read_barred(collection: Path, known: "Judged") -> Barred:
    """Returns the barred passages of the n questions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(known.queries):
        return between(Texts(*np.zeros((2, 0), np.uint64)), *np.zeros((4, 0), np.int64))
    texts = read_table(collection / "queries.parquet", columns=["text"])["text"].take(pa.array(known.queries))
    query_words_n = np.array([hash_id(same_words(text)) for text in texts.to_pylist()], np.uint64)
    documents = read_documents(collection, known.passage_ids)
    own_n = pc.fill_null(pc.index_in(known.query_ids, value_set=documents.ids), -1).to_numpy()
    judged = np.arange(len(known.queries)).repeat(known.lists.lengths), known.lists.flat
    if documents.are_cut:
        questions = np.concatenate([judged[0], np.arange(len(own_n))])
        judged = documents.passages(questions, np.concatenate([documents.of_P[judged[1]], own_n]))
        own_n = np.full_like(own_n, -1)
    return between(read_texts(collection), query_words_n, own_n, *judged)


def between(
    texts: Texts, query_words_n: np.ndarray, own_n: np.ndarray, question_J: np.ndarray, passage_J: np.ndarray
) -> Barred:
    """Returns the barred passages of n questions.

    `query_words_n`: hashes of the questions' words; `own_n`: rows of the passages with the questions' ids, -1: none;
    `question_J`, `passage_J`: index of the question and row of the passage of each positive.
    """
    positives, text_J = np.unique(texts.text_P[passage_J], return_inverse=True)
    words, words_n = np.unique(query_words_n, return_inverse=True)
    return Barred(
        judged_J=_ended(pair_keys(question_J, passage_J)),
        copied_C=_ended(pair_keys(question_J, text_J)),
        text_P=_numbers(positives, texts.text_P),
        words_n=words_n.astype(np.int32),
        words_P=_numbers(words, texts.words_P),
        own_n=own_n.astype(np.int64),
    )


def _ended(key_K: np.ndarray) -> np.ndarray:
    return np.append(np.unique(key_K), NO_PAIR)


def _numbers(known: np.ndarray, hash_P: np.ndarray) -> np.ndarray:
    """Returns the index of each hash in `known`, which is ascending; -1: not in it. int32 [P]."""
    if not len(known):
        return np.full(len(hash_P), -1, np.int32)
    place_P = np.searchsorted(known, hash_P).clip(max=len(known) - 1)
    return np.where(known[place_P] == hash_P, place_P, -1).astype(np.int32)


def pair_keys(question_N: np.ndarray, other_N: np.ndarray) -> np.ndarray:
    """Returns each pair (question, passage or text) as one number that sorts by question: the question's number << 32
    | the other number. int64 [N]. If one of the two is -1, the result is below 0 and not a key.
    """
    return question_N.astype(np.int64) << 32 | other_N.astype(np.int64)


def reasons(barred: Barred, question_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    """Returns why each pair is not a negative: an index in REASONS, or FREE (also for unknown ones, -1). int8 [N]."""
    reason_N = np.full(len(question_N), FREE, np.int8)
    at_K = np.flatnonzero((question_N >= 0) & (passage_N >= 0))
    question_K, passage_K = question_N[at_K], passage_N[at_K]
    holds = (
        _among(barred.judged_J, pair_keys(question_K, passage_K)),
        _among(barred.copied_C, pair_keys(question_K, barred.text_P[passage_K])),
        (barred.own_n[question_K] == passage_K) | (barred.words_n[question_K] == barred.words_P[passage_K]),
    )
    reason_N[at_K] = np.select(holds, range(len(REASONS)), FREE)
    return reason_N


def _among(sorted_K: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    return sorted_K[np.searchsorted(sorted_K, key_N)] == key_N


def barred_pairs(barred: Barred, question_Q: np.ndarray, passage_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (index in `question_Q`, index in `passage_M`) of every barred pair, by the rule of `reasons`."""
    low_Q, high_Q = (np.searchsorted(barred.copied_C, pair_keys(question_Q + more, np.zeros(1))) for more in (0, 1))
    index_C = np.repeat(np.arange(len(question_Q)), high_Q - low_Q)
    inside_C = np.arange(len(index_C)) - np.repeat(np.cumsum(high_Q - low_Q) - (high_Q - low_Q), high_Q - low_Q)
    text_C = barred.copied_C[low_Q[index_C] + inside_C] & 0xFFFFFFFF
    copy_R, copied_R = matches(text_C, barred.text_P[passage_M])
    own = matches(barred.own_n[question_Q], passage_M)
    words = matches(barred.words_n[question_Q], barred.words_P[passage_M])
    key_R = np.unique(np.concatenate([pair_keys(index_C[copy_R], copied_R), pair_keys(*own), pair_keys(*words)]))
    return key_R >> 32, key_R & 0xFFFFFFFF


def numbers_barred(barred: Barred) -> np.ndarray:
    """Returns the number of barred passages of each question, int64 [n].

    The numbers are exact: a sum over the three reasons would reject a small collection that has just enough other
    passages. So each passage counts once: positives count among the copies of their texts; copies with the question's
    words count only among the passages with these words; the passage with the question's id counts if neither applies.
    """
    n = len(barred.own_n)
    question_C, text_C = barred.copied_C[:-1] >> 32, barred.copied_C[:-1] & 0xFFFFFFFF
    copies_C = np.bincount(barred.text_P + 1)[1:][text_C] if len(text_C) else text_C
    both, both_P = np.unique(pair_keys(barred.words_P, barred.text_P), return_counts=True)
    place_C = np.searchsorted(both, key_C := pair_keys(barred.words_n[question_C], text_C)).clip(
        max=max(0, len(both) - 1)
    )
    twice_C = np.where(both[place_C] == key_C, both_P[place_C], 0) if len(both) else np.zeros_like(text_C)
    by_words_n = np.bincount(barred.words_P + 1, minlength=n + 1)[1:][barred.words_n]
    by_text_n = np.bincount(question_C, copies_C - twice_C, n).astype(np.int64)
    own_n = np.flatnonzero(barred.own_n >= 0)
    row_n = barred.own_n[own_n]
    copied_n = _among(barred.copied_C, pair_keys(own_n, barred.text_P[row_n]))
    by_id_n = np.zeros(n, np.int64)
    by_id_n[own_n] = ~copied_n & (barred.words_n[own_n] != barred.words_P[row_n])
    return by_text_n + by_words_n + by_id_n


class ById:
    """Applies the rule to ids. Memory: the ids of the n questions and of all barred passages."""

    def __init__(self, barred: Barred, known: "Judged") -> None:
        import pyarrow as pa

        self._barred = barred
        equal_K = np.flatnonzero((barred.text_P >= 0) | (barred.words_P >= 0))
        row_K = np.union1d(equal_K, barred.own_n[barred.own_n >= 0])
        self._question = {query_id: n for n, query_id in enumerate(known.query_ids.to_pylist())}
        self._row = dict(zip(known.passage_ids.take(pa.array(row_K)).to_pylist(), row_K.tolist(), strict=True))

    def reasons(self, query_ids: Sequence[str], passage_ids: Sequence[str]) -> np.ndarray:
        """Returns the `reasons` of pairs of ids; FREE for unknown questions."""
        question_N = np.array([self._question.get(query_id, -1) for query_id in query_ids], np.int64)
        passage_N = np.array([self._row.get(passage_id, -1) for passage_id in passage_ids], np.int64)
        return reasons(self._barred, question_N, passage_N)

    def of(self, query_id: str, passage_ids: Sequence[str]) -> np.ndarray:
        """Returns the reasons for passages of one question."""
        return self.reasons([query_id] * len(passage_ids), passage_ids)


def by_id(collection: Path, barred: Barred | None = None) -> ById:
    """Returns the rule for all training questions. `barred`: the result of `of_training`, if the caller has it."""
    from pipeline.data.judged import read_questions

    known = read_questions(collection, "train")
    return ById(read_barred(collection, known) if barred is None else barred, known)


def of_training(collection: Path) -> Barred:
    """Returns the barred passages of all training questions, numbered as in `by_id`."""
    from pipeline.data.judged import read_questions

    return read_barred(collection, read_questions(collection, "train"))


def free(reason_N: np.ndarray) -> list[int]:
    """Returns the indices of the pairs that may be negatives."""
    return np.flatnonzero(reason_N == FREE).tolist()


class Dropped:
    """Counts the passages dropped from lists of negatives by reason, and keeps the first examples."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.first: dict[str, list[str]] = {}

    def count(self, query_ids: Sequence[str], passage_ids: Sequence[str], reason_N: np.ndarray) -> None:
        """Counts pairs of ids by their reasons."""
        for number, reason in enumerate(REASONS):
            places = np.flatnonzero(reason_N == number).tolist()
            self.add(reason, len(places), [(query_ids[i], passage_ids[i]) for i in places[:EXAMPLES]])

    def add(self, reason: str, count: int, first: Sequence[tuple[str, str]] = ()) -> None:
        """Adds `count` dropped passages. `first`: (question, passage) of the first ones."""
        self.counts[reason] += count
        examples = self.first.setdefault(reason, [])
        examples += [f"{passage_id} for {query_id}" for query_id, passage_id in first][: EXAMPLES - len(examples)]

    def count_pairs(self, reason_N: np.ndarray, question_N: np.ndarray, passage_N: np.ndarray, known: "Judged") -> None:
        """Counts pairs by their `reasons`; questions and passages are numbered as in `known`."""
        for number, reason in enumerate(REASONS):
            places = np.flatnonzero(reason_N == number)
            pairs = ((int(question_N[i]), int(passage_N[i])) for i in places[:EXAMPLES])
            first = [(known.query_ids[q].as_py(), known.passage_ids[p].as_py()) for q, p in pairs]
            self.add(reason, len(places), first)

    def metrics(self) -> dict[str, int]:
        return {f"dropped_{reason}": count for reason, count in self.counts.items()}

    def notices(self, expected: Collection[str] = ()) -> list[str]:
        """Returns a notice per reason. `expected`: reasons to skip, such as the positives among a question's hits."""
        return [
            notice(f"negatives dropped, {what}", self.counts[reason], self.first.get(reason, ()))
            for reason, what in DESCRIPTIONS.items()
            if self.counts[reason] and reason not in expected
        ]


def matches(left_H: np.ndarray, right_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (index in `left_H`, index in `right_N`) of every pair of equal values, sorted by index in `left_H`."""
    order_N = np.argsort(right_N, kind="stable")
    begin_H, end_H = (np.searchsorted(right_N, left_H, side, sorter=order_N) for side in ("left", "right"))
    count_H = end_H - begin_H
    hit_R = np.repeat(np.arange(len(left_H)), count_H)
    inside_R = np.arange(len(hit_R)) - np.repeat(count_H.cumsum() - count_H, count_H)
    return hit_R, order_N[begin_H[hit_R] + inside_R]
