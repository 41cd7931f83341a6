"""Which passages are no negatives of a question: one rule, whatever the negatives come from.

    judged      a passage that is judged relevant for the question
    duplicate   a passage with exactly the text of such a one, white space at both ends aside; a passage without text
                says its title
    question    the passage that is the question itself: it has the question's id (BEIR's `ignore_identical_ids`), or
                says the question's words, whatever their case, white space and Unicode form

The first that applies is the reason. Texts are compared by 64-bit hashes (see pipeline/ids.py).

Shapes: n questions, P passages of the collection, K barred pairs of a question and a passage.
"""

import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.collection import passage_batches
from pipeline.ids import hash_id
from pipeline.notices import EXAMPLES, notice
from pipeline.similarity import matches
from pipeline.stored import read_table

if TYPE_CHECKING:
    from pipeline.pools import Judged

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
"""Of these reasons, and of those of a file (pipeline/given.py) and of mining (pipeline/mine.py)."""
FREE = -1
"""Instead of a reason: the passage may be a negative of the question."""
MASK = (1 << 32) - 1
NO_PAIR = np.iinfo(np.int64).max


class Texts(NamedTuple):
    """What each passage says, as hashes, uint64 [P]: 16 bytes a passage."""

    text_P: np.ndarray
    words_P: np.ndarray


class Barred(NamedTuple):
    """The K barred pairs in the order of their keys, then NO_PAIR, so that every search ends at an entry."""

    key_K: np.ndarray
    """Number of the question << 32 | row of the passage, ascending, none twice. int64."""
    reason_K: np.ndarray
    """Index in REASONS, FREE last. int8."""

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """(number of the question, row of the passage) of each pair, int64 [K]."""
        return self.key_K[:-1] >> 32, self.key_K[:-1] & MASK


def read_texts(collection: Path) -> Texts:
    """One pass over the passages; memory: a batch of texts, and 16 bytes a passage."""
    text, words = array("Q"), array("Q")
    for batch in passage_batches(collection, ["title", "text"]):
        for title, body in zip(*batch.values(), strict=True):
            said = body.strip() or title.strip()
            text.append(hash_id(said))
            words.append(hash_id(same_words(said)))
    return Texts(np.frombuffer(text, np.uint64), np.frombuffer(words, np.uint64))


def same_words(text: str) -> str:
    """Equal for texts of the same words, whatever their case, white space and Unicode form."""
    return unicodedata.normalize("NFC", " ".join(text.split()).casefold())


def read(collection: Path, known: "Judged", texts: Texts | None = None) -> Barred:
    """What is barred of the n questions. `texts`: where the caller has them already."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(known.queries):
        return between(Texts(*np.zeros((2, 0), np.uint64)), *np.zeros((4, 0), np.int64))
    asked = read_table(collection / "queries.parquet", columns=["text"])["text"].take(pa.array(known.queries))
    asked_n = np.array([hash_id(same_words(text)) for text in asked.to_pylist()], np.uint64)
    own_n = pc.fill_null(pc.index_in(known.query_ids, value_set=known.passage_ids), -1).to_numpy()
    judged = np.arange(len(known.queries)).repeat(known.lists.lengths), known.lists.flat
    return between(texts or read_texts(collection), asked_n, own_n, *judged)


def between(texts: Texts, asked_n: np.ndarray, own_n: np.ndarray, judge_J: np.ndarray, judged_J: np.ndarray) -> Barred:
    """What is barred of n questions. `asked_n`: hashes of their words; `own_n`: the rows of the passages that have
    their ids, -1 for none; `judge_J`, `judged_J`: number of the question and row of the passage of each positive.
    """
    copied, copies = matches(texts.text_P[judged_J], texts.text_P)
    named = np.flatnonzero(own_n >= 0)
    found = [
        (judge_J, judged_J, "judged"),
        (judge_J[copied], copies, "duplicate"),
        (named, own_n[named], "question"),
        (*matches(asked_n, texts.words_P), "question"),
    ]
    key_K = np.concatenate([keys(questions, passages) for questions, passages, _ in found])
    reason_K = np.concatenate([np.full(len(q), REASONS.index(reason), np.int8) for q, _, reason in found])
    key_K, first_K = np.unique(key_K, return_index=True)  # of equal pairs the first one's reason
    return Barred(np.append(key_K, NO_PAIR), np.append(reason_K[first_K], np.int8(FREE)))


def keys(question_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    return question_N.astype(np.int64) << 32 | passage_N.astype(np.int64)


def reasons(barred: Barred, question_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    """Why each pair is no negative: index in REASONS, or FREE, as for unknown ones (-1). int8 [N]."""
    key_N = keys(question_N, passage_N)
    place_N = np.searchsorted(barred.key_K, key_N)
    return np.where(barred.key_K[place_N] == key_N, barred.reason_K[place_N], np.int8(FREE))


def by_id(collection: Path) -> dict[str, dict[str, str]]:
    """{training question: {passage: reason}} of all training questions for which something is barred."""
    from pipeline.pools import read_questions

    known = read_questions(collection, "train")
    barred = read(collection, known)
    question_K, passage_K = barred.pairs()
    ids = known.query_ids.take(question_K).to_pylist(), known.passage_ids.take(passage_K).to_pylist()
    found: dict[str, dict[str, str]] = {}
    for query_id, passage_id, reason in zip(*ids, barred.reason_K[:-1].tolist(), strict=True):
        found.setdefault(query_id, {})[passage_id] = REASONS[reason]
    return found


def free(passages: Sequence[str], of_question: Mapping[str, str]) -> list[int]:
    """Places of the passages that may be negatives of a question. `of_question`: its entry in `by_id`."""
    return [place for place, passage_id in enumerate(passages) if passage_id not in of_question]


class Dropped:
    """Counts by reason what is dropped of lists of negatives, and remembers the first ones."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.first: dict[str, list[str]] = {}

    def count(self, query_id: str, passages: Iterable[str], of_question: Mapping[str, str]) -> None:
        """Count the passages that are barred of a question. `of_question`: its entry in `by_id`."""
        for passage_id in passages:
            if passage_id in of_question:
                self.add(of_question[passage_id], 1, [(query_id, passage_id)])

    def add(self, reason: str, count: int, first: Sequence[tuple[str, str]] = ()) -> None:
        """`first`: (question, passage) of the first ones."""
        self.counts[reason] += count
        examples = self.first.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples += [f"{passage_id} for {query_id}" for query_id, passage_id in first]

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
