"""Many ids in little memory: 64-bit hashes, 8 bytes an id.

Two different ids share a hash with a probability of n^2 / 2^65 (2e-6 for 9 million), so equal hashes only make
candidates, which a second reading confirms. That an unknown id meets a known hash (n / 2^64 an id) is neglected.
"""

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np

from pipeline.errors import InputError


def hash_id(text: str) -> int:
    """The id's 64-bit BLAKE2b hash. Half of a surrogate pair, no UTF-8, has one too: it is refused where it is read."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def sort(hashes: array) -> np.ndarray:
    """The hashes in ascending order, uint64 (n,): sorted in place, without a copy."""
    view = np.frombuffer(hashes, dtype=np.uint64)
    view.sort()
    return view


def contains(sorted_hashes: np.ndarray, texts: list[str]) -> np.ndarray:
    """Which of the m `texts` are among the n sorted hashes: bool (m,)."""
    asked = np.fromiter(map(hash_id, texts), dtype=np.uint64, count=len(texts))
    if not len(sorted_hashes):
        return np.zeros(len(texts), dtype=bool)
    return sorted_hashes[np.searchsorted(sorted_hashes, asked).clip(max=len(sorted_hashes) - 1)] == asked


def forbid_repeats(kind: str, sorted_hashes: np.ndarray, again: Iterable[tuple[str, str]]) -> None:
    """Raises InputError that names both places if an id stands twice in `again`, the (place, id) read once more.

    `again` is read only where two hashes are equal.
    """
    candidates = set(sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]].tolist())
    first: dict[str, str] = {}
    for place, text in again if candidates else ():
        if text in first:
            raise InputError(f"{place}: {kind} {text!r} already stands at {first[text]}")
        if hash_id(text) in candidates:
            first[text] = place


def run_starts(placed: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The first (place, id) of each run of equal ids, without the empty id."""
    last = ""
    for place, text in placed:
        if text and text != last:
            yield place, text
        last = text


def first_distinct(rows: Iterable[tuple[str, str, str]], most: int) -> Iterator[tuple[str, str, str]]:
    """Of the (place, key, value) those with the first `most` distinct values of each key. Memory: 8 bytes a value."""
    taken: dict[str, array] = {}
    for place, key, value in rows:
        of_key = taken.setdefault(key, array("Q"))
        if len(of_key) < most and (hashed := hash_id(value)) not in of_key:
            of_key.append(hashed)
            yield place, key, value
