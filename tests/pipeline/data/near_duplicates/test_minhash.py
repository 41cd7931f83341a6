"""Which texts almost equal each other."""

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.near_duplicates import minhash
from pipeline.data.near_duplicates.groups import Groups

VOCABULARY = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "nrsl"]
HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种"
THAI = "กขคงจฉชซญดตถทนบปผพฟมยรลวสหอ"


def found(texts: list[str], similarity: float = 0.8, batch: int = 7) -> Groups:
    return minhash.find_groups(lambda: (texts[i : i + batch] for i in range(0, len(texts), batch)), similarity)


def pairs(texts: list[str], similarity: float = 0.8) -> list[tuple[int, int]]:
    groups = found(texts, similarity)
    return [
        (first, row) for row, first in zip(groups.row_U.tolist(), groups.first_U.tolist(), strict=True) if row != first
    ]


def made(rng: random.Random, words: int) -> list[str]:
    return rng.choices(VOCABULARY, k=words)


@pytest.mark.parametrize("changed", [1, 2, 3])
def test_texts_of_80_words_are_found_with_up_to_three_changed(changed):
    rng = random.Random(0)
    texts = [made(rng, 80) for _ in range(300)]
    copies = [[*text] for text in texts]
    for copy in copies:
        for place in rng.sample(range(80), changed):
            copy[place] = "anotherword"
    found_pairs, expected = {*pairs([" ".join(text) for text in texts + copies])}, {(n, 300 + n) for n in range(300)}
    assert found_pairs <= expected
    assert len(found_pairs) >= (300 if changed < 3 else 297)  # three: a similarity of just 0.8


@pytest.mark.parametrize("signs", [HAN, THAI])
@pytest.mark.parametrize("change", ["{}x{}", "{}{}"])
def test_in_scripts_without_spaces_a_new_sign_moves_no_word(signs, change):
    rng = random.Random(1)
    texts = ["".join(rng.choices(signs, k=120)) for _ in range(50)]
    copies = [change.format(text[:21], text[21 if "x" in change else 22 :]) for text in texts]
    assert pairs(texts + copies) == [(n, 50 + n) for n in range(50)]


@pytest.mark.parametrize(
    ("one", "other", "almost"),
    [
        ("What is a list?", "what is a LIST", True),
        ("what is a list", "what is a tuple", False),
        ("Chapter 1", "Chapter 2", False),
        ("List", "list.", True),
        ("a b", "b a", False),
        ("pip install numpy", "pip install scipy", False),
        ("Returns the sine of x, in radians", "Returns the cosine of x, in radians", False),
        ("how do I sort a list", "how do I sort a list backwards", False),
        (" ".join("abcdefghijklmnopqrs"), " ".join("abcdefghijklmnopqrst"), False),
        (" ".join("abcdefghijklmnopqrst"), " ".join("abcdefghijklmnopqrstu"), True),
        ("***", "---", False),
        ("", "", False),
    ],
)
def test_short_texts_need_the_same_words(one, other, almost):
    assert bool(pairs([one, "something else", other])) == almost


def test_groups_are_connected_and_name_their_first_text():
    words = [f"w{n}" for n in range(100)]
    near = [*words[:50], "x", *words[51:]]
    far = [*near[:95], "y", *near[96:]]
    other = [f"v{n}" for n in range(100)]
    groups = found([" ".join(text) for text in (other, far, near, words, other)], 0.93)
    assert (groups.row_U.tolist(), groups.first_U.tolist()) == ([0, 1, 2, 3, 4], [0, 1, 1, 1, 0])
    assert groups.count == 2


def test_a_text_with_very_many_copies_takes_few_comparisons():
    texts = ["the same footer on every page of the site"] * 3000 + [f"the same footer on page {n}" for n in range(3000)]
    key_TB = minhash.band_keys([texts], 0.8)
    assert len(minhash.candidates(key_TB)) < 3000 * (1 + minhash.WINDOW * key_TB.shape[1])
    groups = found(texts, batch=1000)
    assert groups.first_U.tolist() == [0] * 3000


@given(st.lists(st.text("ab .カ中ก", max_size=12), max_size=25), st.sampled_from([0.5, 0.8, 1.0]))
def test_groups_are_those_of_exact_similarities(texts, similarity):
    sets = [{*minhash.shingles(text).tolist()} for text in texts]
    links = {n: n for n in range(len(texts))}

    def root(n: int) -> int:
        return n if links[n] == n else root(links[n])

    for one, other in combinations(range(len(texts)), 2):
        both = len(sets[one] & sets[other])
        if both and both >= similarity * len(sets[one] | sets[other]):
            links[max(root(one), root(other))] = min(root(one), root(other))
    groups = found(texts, similarity)
    for row, first in zip(groups.row_U.tolist(), groups.first_U.tolist(), strict=True):
        assert root(row) == root(first)  # never a false one
    if similarity == 1.0:  # nor is one missed
        assert groups.row_U.tolist() == [n for n in links if sum(root(n) == root(m) for m in links) > 1]


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_find_a_pair_at_the_threshold(similarity):
    rows = minhash.band_rows(similarity)
    assert 1 - (1 - similarity**rows) ** (minhash.PERMUTATIONS // rows) >= minhash.RECALL


def test_others_and_firsts():
    groups = Groups(np.array([2, 5, 7, 8, 9]), np.array([2, 2, 7, 7, 2]))
    assert groups.first(np.array([0, 9, 7, 100, 5])).tolist() == [0, 2, 7, 100, 2]
    assert [groups.others(row).tolist() for row in (2, 9, 8, 3)] == [[5, 9], [2, 5], [7], []]
    empty = Groups(*np.zeros((2, 0), np.int64))
    assert (empty.first(np.array([3])).tolist(), empty.others(3).tolist()) == ([3], [])
