"""Ids: which ones are valid, and 64-bit hashes that hold many of them in little memory (8 bytes per id).

Some two of n different ids share a hash with a probability of n^2 / 2^65 (2e-6 for 9 million). So equal hashes are
only candidates; a second reading compares the ids. That an unknown id has a known hash (n / 2^64 per id) is neglected.
"""

import re
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np

from pipeline.errors import InputError
from pipeline.notices import one_line

LONGEST = 4096
"""Maximum characters of an id. Lucene's limit is 32,766 bytes."""
BARE = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{{1,{LONGEST}}}")
SPACED = re.compile(rf"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{{1,{LONGEST}}}")
FAULTS = (
    ("\0", "holds a NUL character"),
    ("[\ud800-\udfff]", "holds half of a surrogate pair"),
    (r"\A\s*\Z|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]", "is empty or holds white space"),
    (r"\A\s|\s\Z", "begins or ends with white space"),
    (r"[\x00-\x1f\x7f-\x9f]", "holds a control character"),
    (rf".{{{LONGEST + 1}}}", f"is longer than {LONGEST:,} characters"),
)
"""(pattern, fault of an id that it matches); the first match counts."""


def check_id(place: str, kind: str, text: str, spaces: bool = False) -> None:
    """Raises InputError for an id that cannot be written to a TREC run or to a file of judgements.

    Such an id is empty, too long, or holds white space, a control character (trec_eval's code ends an id at a NUL) or
    half of a surrogate pair. `spaces`: allow spaces inside the id, for files whose columns are separated by tabs.
    """
    if BARE.fullmatch(text) or (spaces and SPACED.fullmatch(text) and text == text.strip()):
        return
    fault = next((fault for pattern, fault in FAULTS if re.search(pattern, text)), "is empty or holds white space")
    raise InputError(f"{place}: {kind} id '{one_line(text)}' {fault}; change it in every file that names it")


def hash_id(text: str) -> int:
    """Returns the id's 64-bit BLAKE2b hash. Half of a surrogate pair is hashed too; the readers reject it."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def sort(hashes: array) -> np.ndarray:
    """Returns the hashes in ascending order, uint64 (n,): sorted in place, without a copy."""
    view = np.frombuffer(hashes, dtype=np.uint64)
    view.sort()
    return view


def contains(sorted_hashes: np.ndarray, texts: list[str]) -> np.ndarray:
    """Returns which of the m `texts` are among the n sorted hashes: bool (m,)."""
    hashes = np.fromiter(map(hash_id, texts), dtype=np.uint64, count=len(texts))
    if not len(sorted_hashes):
        return np.zeros(len(texts), dtype=bool)
    return sorted_hashes[np.searchsorted(sorted_hashes, hashes).clip(max=len(sorted_hashes) - 1)] == hashes


def forbid_repeats(kind: str, sorted_hashes: np.ndarray, again: Iterable[tuple[str, str]]) -> None:
    """Raises InputError, with both places, if an id appears twice in `again`: the (place, id) pairs in a second pass.

    `again` is read only if two hashes are equal.
    """
    candidates = set(sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]].tolist())
    first: dict[str, str] = {}
    for place, text in again if candidates else ():
        if text in first:
            raise InputError(f"{place}: {kind} '{one_line(text)}' is already at {first[text]}")
        if hash_id(text) in candidates:
            first[text] = place


def run_starts(placed: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the first (place, id) of each run of equal ids, without the empty id."""
    last = ""
    for place, text in placed:
        if text and text != last:
            yield place, text
        last = text


def first_distinct(rows: Iterable[tuple[str, str, str]], most: int) -> Iterator[tuple[str, str, str]]:
    """Yields the rows (place, key, value) with the first `most` distinct values of each key.

    Memory: 8 bytes per value.
    """
    hashes: dict[str, array] = {}
    for place, key, value in rows:
        of_key = hashes.setdefault(key, array("Q"))
        if len(of_key) < most and (hashed := hash_id(value)) not in of_key:
            of_key.append(hashed)
            yield place, key, value
