"""Which passages are no negatives of a question: one rule, whatever the negatives come from.

    judged      a passage that is judged relevant for the question
    duplicate   a passage with exactly the text of such a one, white space at both ends aside; a passage without text
                says its title
    question    the passage that is the question itself: it has the question's id (BEIR's `ignore_identical_ids`), or
                says the question's words, whatever their case, white space and Unicode form

The first that applies is the reason. Texts are compared by 64-bit hashes (see data/ids.py), and never listed by
pairs: a text that a thousand questions have for a positive may have a hundred thousand copies.

Shapes: n questions, P passages of the collection, J positives, C texts of these (of each question once).
"""

import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.data.collection import passage_batches
from pipeline.data.ids import hash_id
from pipeline.data.stored import read_table, told
from pipeline.notices import EXAMPLES, notice

if TYPE_CHECKING:
    from pipeline.data.judged import Judged

REASONS = ("judged", "duplicate", "question")
DESCRIPTIONS = {
    "judged": "judged relevant",
    "duplicate": "exact copies of a positive",
    "question": "the question itself",
    "repeated": "listed again",
    "other_split": "of dev and test questions",
    "unknown": "with unknown ids",
    "margin": "which score too close to the positive",
}
"""Of these reasons, and of those of a file (negatives/from_file.py) and of mining (negatives/mine.py)."""
FREE = -1
"""Instead of a reason: the passage may be a negative of the question."""
NO_PAIR = np.iinfo(np.int64).max


class Texts(NamedTuple):
    """What each passage says, as hashes, uint64 [P]: 16 bytes a passage."""

    text_P: np.ndarray
    words_P: np.ndarray


class Barred(NamedTuple):
    """What is barred of n questions. Keys (see `keys`) are ascending, none twice, then NO_PAIR, so that every search
    ends at an entry."""

    judged_J: np.ndarray
    """Keys of each question and its positives. int64."""
    copied_C: np.ndarray
    """Keys of each question and the texts of its positives. int64."""
    text_P: np.ndarray
    """Number of each passage's text among those of positives, -1 for another one. int32."""
    words_n: np.ndarray
    """Number of each question's words. int32."""
    words_P: np.ndarray
    """Number of each passage's words among those of questions, -1 for others. int32."""
    own_n: np.ndarray
    """Row of the passage that has the question's id, -1 for none. int64."""


def read_texts(collection: Path) -> Texts:
    """One pass over the passages; memory: a batch of texts, and 16 bytes a passage.

    Those of the last collection are kept, for the stages of a run that follow each other in one process.
    """
    path = collection / "passages.parquet"
    with told(path):
        found = path.stat()
    return _read_texts(collection, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


@lru_cache(maxsize=1)
def _read_texts(collection: Path, state: tuple[int, ...]) -> Texts:
    """`state`: of the file, which is read again where it has changed."""
    text, words = array("Q"), array("Q")
    for batch in passage_batches(collection, ["title", "text"]):
        for title, body in zip(*batch.values(), strict=True):
            said = body.strip() or title.strip()
            text.append(hash_id(said))
            words.append(hash_id(same_words(said)))
    return Texts(np.frombuffer(text, np.uint64), np.frombuffer(words, np.uint64))


def same_words(text: str) -> str:
    """Equal for texts of the same words, whatever their case, white space and Unicode form, full width too.

    What folding the case leaves need not be normal, hence twice.
    """
    folded = text.casefold() if text.isascii() else _normal(_normal(text).casefold())
    return " ".join(folded.split())


_normal = partial(unicodedata.normalize, "NFKC")


def read(collection: Path, known: "Judged") -> Barred:
    """What is barred of the n questions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(known.queries):
        return between(Texts(*np.zeros((2, 0), np.uint64)), *np.zeros((4, 0), np.int64))
    asked = read_table(collection / "queries.parquet", columns=["text"])["text"].take(pa.array(known.queries))
    asked_n = np.array([hash_id(same_words(text)) for text in asked.to_pylist()], np.uint64)
    own_n = pc.fill_null(pc.index_in(known.query_ids, value_set=known.passage_ids), -1).to_numpy()
    judged = np.arange(len(known.queries)).repeat(known.lists.lengths), known.lists.flat
    return between(read_texts(collection), asked_n, own_n, *judged)


def between(texts: Texts, asked_n: np.ndarray, own_n: np.ndarray, judge_J: np.ndarray, judged_J: np.ndarray) -> Barred:
    """What is barred of n questions. `asked_n`: hashes of their words; `own_n`: the rows of the passages that have
    their ids, -1 for none; `judge_J`, `judged_J`: number of the question and row of the passage of each positive.
    """
    said, said_J = np.unique(texts.text_P[judged_J], return_inverse=True)
    words, words_n = np.unique(asked_n, return_inverse=True)
    return Barred(
        judged_J=_ended(keys(judge_J, judged_J)),
        copied_C=_ended(keys(judge_J, said_J)),
        text_P=_numbers(said, texts.text_P),
        words_n=words_n.astype(np.int32),
        words_P=_numbers(words, texts.words_P),
        own_n=own_n.astype(np.int64),
    )


def _ended(key_K: np.ndarray) -> np.ndarray:
    return np.append(np.unique(key_K), NO_PAIR)


def _numbers(known: np.ndarray, hash_P: np.ndarray) -> np.ndarray:
    """Place of each hash in `known`, which is ascending; -1: not there. int32 [P]."""
    if not len(known):
        return np.full(len(hash_P), -1, np.int32)
    place_P = np.searchsorted(known, hash_P).clip(max=len(known) - 1)
    return np.where(known[place_P] == hash_P, place_P, -1).astype(np.int32)


def keys(question_N: np.ndarray, other_N: np.ndarray) -> np.ndarray:
    """Each question and what is beside it (a passage, a text) as one number that sorts by question: the question's
    number << 32 | the other's. int64 [N]. Without a number (-1) of either it is below 0, and no key."""
    return question_N.astype(np.int64) << 32 | other_N.astype(np.int64)


def reasons(barred: Barred, question_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    """Why each pair is no negative: index in REASONS, or FREE, as for unknown ones (-1). int8 [N]."""
    reason_N = np.full(len(question_N), FREE, np.int8)
    at_K = np.flatnonzero((question_N >= 0) & (passage_N >= 0))
    question_K, passage_K = question_N[at_K], passage_N[at_K]
    holds = (
        _among(barred.judged_J, keys(question_K, passage_K)),
        _among(barred.copied_C, keys(question_K, barred.text_P[passage_K])),
        (barred.own_n[question_K] == passage_K) | (barred.words_n[question_K] == barred.words_P[passage_K]),
    )
    reason_N[at_K] = np.select(holds, range(len(REASONS)), FREE)
    return reason_N


def _among(sorted_K: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    return sorted_K[np.searchsorted(sorted_K, key_N)] == key_N


def barred_pairs(barred: Barred, question_Q: np.ndarray, passage_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(place in `question_Q`, place in `passage_M`) of every two that are barred, as `reasons` says of all."""
    low_Q, high_Q = (np.searchsorted(barred.copied_C, keys(question_Q + more, np.zeros(1))) for more in (0, 1))
    asking_C = np.repeat(np.arange(len(question_Q)), high_Q - low_Q)
    inside_C = np.arange(len(asking_C)) - np.repeat(np.cumsum(high_Q - low_Q) - (high_Q - low_Q), high_Q - low_Q)
    text_C = barred.copied_C[low_Q[asking_C] + inside_C] & 0xFFFFFFFF
    copy_R, copied_R = matches(text_C, barred.text_P[passage_M])
    own = matches(barred.own_n[question_Q], passage_M)
    words = matches(barred.words_n[question_Q], barred.words_P[passage_M])
    key_R = np.unique(np.concatenate([keys(asking_C[copy_R], copied_R), keys(*own), keys(*words)]))
    return key_R >> 32, key_R & 0xFFFFFFFF


def numbers_barred(barred: Barred) -> np.ndarray:
    """How many passages are barred of each question, int64 [n].

    Exact: the sum of three reasons would refuse a small collection that holds just enough others. So a passage counts
    once, as what the first reason that applies bars: a positive is among the copies of its text; copies with the
    question's words count among those words alone; the passage with its id counts where neither bars it.
    """
    n = len(barred.own_n)
    question_C, text_C = barred.copied_C[:-1] >> 32, barred.copied_C[:-1] & 0xFFFFFFFF
    copies_C = np.bincount(barred.text_P + 1)[1:][text_C] if len(text_C) else text_C
    both, both_P = np.unique(keys(barred.words_P, barred.text_P), return_counts=True)
    place_C = np.searchsorted(both, key_C := keys(barred.words_n[question_C], text_C)).clip(max=max(0, len(both) - 1))
    twice_C = np.where(both[place_C] == key_C, both_P[place_C], 0) if len(both) else np.zeros_like(text_C)
    asked_n = np.bincount(barred.words_P + 1, minlength=n + 1)[1:][barred.words_n]
    by_text_n = np.bincount(question_C, copies_C - twice_C, n).astype(np.int64)
    own_n = np.flatnonzero(barred.own_n >= 0)
    row_n = barred.own_n[own_n]
    copied_n = _among(barred.copied_C, keys(own_n, barred.text_P[row_n]))
    by_id_n = np.zeros(n, np.int64)
    by_id_n[own_n] = ~copied_n & (barred.words_n[own_n] != barred.words_P[row_n])
    return by_text_n + asked_n + by_id_n


class ById:
    """The rule by ids. Memory: the ids of n questions, and of the passages that are barred of any."""

    def __init__(self, barred: Barred, known: "Judged") -> None:
        import pyarrow as pa

        self._barred = barred
        said_K = np.flatnonzero((barred.text_P >= 0) | (barred.words_P >= 0))
        row_K = np.union1d(said_K, barred.own_n[barred.own_n >= 0])
        self._question = {query_id: n for n, query_id in enumerate(known.query_ids.to_pylist())}
        self._row = dict(zip(known.passage_ids.take(pa.array(row_K)).to_pylist(), row_K.tolist(), strict=True))

    def reasons(self, query_ids: Sequence[str], passage_ids: Sequence[str]) -> np.ndarray:
        """`reasons` of pairs of ids; FREE for questions that are none of these."""
        question_N = np.array([self._question.get(query_id, -1) for query_id in query_ids], np.int64)
        passage_N = np.array([self._row.get(passage_id, -1) for passage_id in passage_ids], np.int64)
        return reasons(self._barred, question_N, passage_N)

    def of(self, query_id: str, passage_ids: Sequence[str]) -> np.ndarray:
        """The reasons for one question."""
        return self.reasons([query_id] * len(passage_ids), passage_ids)


def by_id(collection: Path, barred: Barred | None = None) -> ById:
    """The rule of all training questions. `barred`: what `of_training` gives, where the caller has it already."""
    from pipeline.data.judged import read_questions

    known = read_questions(collection, "train")
    return ById(read(collection, known) if barred is None else barred, known)


def of_training(collection: Path) -> Barred:
    """What is barred of all training questions, as `by_id` numbers them."""
    from pipeline.data.judged import read_questions

    return read(collection, read_questions(collection, "train"))


def free(reason_N: np.ndarray) -> list[int]:
    """Places of what may be negatives."""
    return np.flatnonzero(reason_N == FREE).tolist()


class Dropped:
    """Counts by reason what is dropped of lists of negatives, and remembers the first ones."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.first: dict[str, list[str]] = {}

    def count(self, query_ids: Sequence[str], passage_ids: Sequence[str], reason_N: np.ndarray) -> None:
        """Count pairs of ids by their reasons."""
        for number, reason in enumerate(REASONS):
            places = np.flatnonzero(reason_N == number).tolist()
            self.add(reason, len(places), [(query_ids[i], passage_ids[i]) for i in places[:EXAMPLES]])

    def add(self, reason: str, count: int, first: Sequence[tuple[str, str]] = ()) -> None:
        """`first`: (question, passage) of the first ones."""
        self.counts[reason] += count
        examples = self.first.setdefault(reason, [])
        examples += [f"{passage_id} for {query_id}" for query_id, passage_id in first][: EXAMPLES - len(examples)]

    def count_pairs(self, reason_N: np.ndarray, question_N: np.ndarray, passage_N: np.ndarray, known: "Judged") -> None:
        """Count pairs by their `reasons`; numbers of questions and passages as in `known`."""
        for number, reason in enumerate(REASONS):
            places = np.flatnonzero(reason_N == number)
            pairs = ((int(question_N[i]), int(passage_N[i])) for i in places[:EXAMPLES])
            first = [(known.query_ids[q].as_py(), known.passage_ids[p].as_py()) for q, p in pairs]
            self.add(reason, len(places), first)

    def metrics(self) -> dict[str, int]:
        return {f"dropped_{reason}": count for reason, count in self.counts.items()}

    def notices(self, expected: Collection[str] = ()) -> list[str]:
        """A line a reason; `expected`: reasons that are no news, as a question's positives among what is searched."""
        return [
            notice(f"negatives dropped, {what}", self.counts[reason], self.first.get(reason, ()))
            for reason, what in DESCRIPTIONS.items()
            if self.counts[reason] and reason not in expected
        ]


def matches(left_H: np.ndarray, right_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(place in `left_H`, place in `right_N`) of every two equal values, by place in `left_H`."""
    order_N = np.argsort(right_N, kind="stable")
    begin_H, end_H = (np.searchsorted(right_N, left_H, side, sorter=order_N) for side in ("left", "right"))
    count_H = end_H - begin_H
    hit_R = np.repeat(np.arange(len(left_H)), count_H)
    inside_R = np.arange(len(hit_R)) - np.repeat(count_H.cumsum() - count_H, count_H)
    return hit_R, order_N[begin_H[hit_R] + inside_R]
