"""Almost equal texts: those whose sets of three consecutive words have at least a given Jaccard similarity.

Datasketch computes MinHash signatures (Broder 1997). Two texts with an equal part of their signatures (a "band") are
candidates. Their shingles are then compared, so that no group rests on an estimate. Groups are connected: each text
almost equals another one of its group.

Shapes: T texts, H shingles, P permutations, B bands, C candidate pairs, U texts in pairs.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import regex

from pipeline.data.ids import hash_id
from pipeline.data.near_duplicates.groups import Groups
from pipeline.data.text.same_words import same_words
from pipeline.data.text.words import IDEOGRAPHS, PLAIN, PLAIN_WORD, spans

WORDS = 3
"""Words of a shingle. At a similarity of 0.8, three words in 80 may differ, and one in 25."""
PERMUTATIONS = 128
RECALL = 0.99
"""Smallest probability that two texts with exactly the given similarity are candidates."""
WINDOW = 8
"""A text is compared with so many texts before it in its bucket, because a bucket may have a hundred thousand texts.
One almost equal text is enough to join their group."""
SIGN = regex.compile(rf"(?:[{IDEOGRAPHS}]|\p{{Line_Break=SA}})\p{{M}}*")
"""A character of a script without spaces."""
ODD = (np.random.default_rng(0).integers(1 << 63, size=PERMUTATIONS, dtype=np.uint64) << np.uint64(1)) | np.uint64(1)
"""Factors of `row_hash`."""

Texts = Callable[[], Iterator[Sequence[str]]]
"""Starts a stream of batches of texts."""


def find_groups(texts: Texts, similarity: float) -> Groups:
    """Returns the groups of almost equal texts. A text without a word is in none.

    Memory: 4 bytes per text and band (21 bands at 0.8), 80 more per text, and the shingles of candidates.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pair_C2 = candidates(band_keys(texts(), similarity))
    pair_C2 = pair_C2[similarities(texts(), pair_C2) >= similarity]
    row_U, place_C2 = np.unique(pair_C2, return_inverse=True)
    if not len(row_U):
        return Groups(row_U, row_U)
    left_C, right_C = place_C2.reshape(-1, 2).T
    links = coo_array((np.ones(len(left_C), bool), (left_C, right_C)), shape=(len(row_U), len(row_U)))
    _, group_U = connected_components(links, directed=False)
    _, first = np.unique(group_U, return_index=True)
    return Groups(row_U, row_U[first][group_U])


def words_of(text: str) -> list[str]:
    """Returns the words without case and punctuation.

    In scripts without spaces each character is a word, because words are cut there by counting: a new character would
    change all words after it.
    """
    folded = same_words(text)
    if PLAIN.match(folded):
        return PLAIN_WORD.findall(folded)
    words = (folded[start:end] for start, end in spans(folded))
    return [part for word in words for part in (SIGN.findall(word) or [word])]


_word_hash = lru_cache(1 << 18)(hash_id)


def shingles(text: str) -> np.ndarray:
    """Returns the hash of each shingle, uint32 [H], with repetitions.

    The two ends are in shingles too: one word more at an end weighs as much as one in the middle, so that short texts
    do not equal longer ones that begin with them.
    """
    word_W = np.fromiter(map(_word_hash, words_of(text)), np.uint64)
    if not len(word_W):
        return np.zeros(0, np.uint32)
    return upper_half(np.convolve(word_W, ODD[:WORDS]))  # as between zeros


def row_hash(number_NK: np.ndarray) -> np.ndarray:
    """Returns a hash of each row, uint64 [N]; a row has at most PERMUTATIONS numbers."""
    return np.einsum("nk,k->n", number_NK, ODD[: number_NK.shape[1]], dtype=np.uint64)


def upper_half(hash_N: np.ndarray) -> np.ndarray:
    """Returns 32 bits of hashes of 64, whose lower bits are less random. uint32 [N]."""
    return (hash_N >> np.uint64(32)).astype(np.uint32)


def band_rows(similarity: float) -> int:
    """Returns the largest number of permutations in a band with which a pair is a candidate with probability RECALL."""

    def recall(rows: int) -> float:
        return 1 - (1 - similarity**rows) ** (PERMUTATIONS // rows)

    return next(rows for rows in range(PERMUTATIONS, 0, -1) if recall(rows) >= RECALL)


def band_keys(batches: Iterable[Sequence[str]], similarity: float) -> np.ndarray:
    """Returns a hash of each band of each text's signature, uint32 [T, B]."""
    from datasketch import MinHash

    rows = band_rows(similarity)
    bands = PERMUTATIONS // rows
    keys = array("I")
    for batch in batches:
        sets = (shingles(text).tolist() for text in batch)
        signatures = MinHash.generator(sets, num_perm=PERMUTATIONS, hashfunc=int)
        signature_NP = np.stack([signature.hashvalues for signature in signatures])
        band_FR = signature_NP[:, : bands * rows].reshape(-1, rows)
        keys.frombytes(upper_half(row_hash(band_FR)).tobytes())
    return np.frombuffer(keys, np.uint32).reshape(-1, bands)


def candidates(key_TB: np.ndarray) -> np.ndarray:
    """Returns the pairs of texts to compare, ascending, int64 [C, 2]: the first number is the smaller one.

    Texts with equal keys are compared with the first of them alone. So the pairs grow with the texts, not with their
    square.
    """
    _, first, of_T = np.unique(row_hash(key_TB), return_index=True, return_inverse=True)
    first_T = first[of_T]
    pairs = [_pairs(first_T, np.arange(len(key_TB)))]
    first.sort()
    for band in range(key_TB.shape[1]):
        key_T = key_TB[first, band]
        order = np.argsort(key_T, kind="stable")
        row_T, key_T = first[order], key_T[order]
        for step in range(1, WINDOW + 1):
            equal = np.flatnonzero(key_T[step:] == key_T[:-step])
            pairs.append(_pairs(row_T[equal], row_T[equal + step]))
    pair_C = np.unique(np.concatenate(pairs))
    return np.stack([pair_C >> 32, pair_C & 0xFFFFFFFF], axis=1)


def _pairs(left_C: np.ndarray, right_C: np.ndarray) -> np.ndarray:
    different = left_C != right_C
    return np.unique(left_C[different] << 32 | right_C[different])


def similarities(batches: Iterable[Sequence[str]], pair_C2: np.ndarray) -> np.ndarray:
    """Returns the Jaccard similarity of each pair of texts, float64 [C]; 0 without words."""
    needed, rows = iter(np.unique(pair_C2).tolist()), enumerate(text for batch in batches for text in batch)
    wanted = next(needed, None)
    sets: dict[int, np.ndarray] = {}
    for row, text in rows:
        if row == wanted:
            sets[row] = np.unique(shingles(text))
            wanted = next(needed, None)
    return np.array([jaccard(sets[left], sets[right]) for left, right in pair_C2.tolist()])


def jaccard(left_H: np.ndarray, right_H: np.ndarray) -> float:
    """Returns the similarity of two sets of shingles, each ascending and distinct."""
    both = len(np.intersect1d(left_H, right_H, assume_unique=True))
    return both / max(1, len(left_H) + len(right_H) - both)
