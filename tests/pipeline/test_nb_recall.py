"""nb-recall, against sets."""

import numpy as np
import pytest

from pipeline.nb_recall import nb_recall
from pipeline.runs import Run, ranked


def run(*lists: str) -> Run:
    """A list a question; each letter a passage, best first."""
    rows = [(q, ord(p) - ord("a"), -rank) for q, found in enumerate(lists) for rank, p in enumerate(found)]
    return ranked(*(np.array(column) for column in zip(*rows, strict=True)))


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [
        (2, 3, [0.5, 1.0, 0.0, 0.0]),
        (2, 1, [0.0, 0.5, 0.0, 0.0]),
        (1, 4, [1.0, 1.0, 1.0, 0.0]),  # the first of the third question stands fourth in the earlier list
        (4, 4, [0.5, 0.5, 0.25, 0.0]),
    ],
)
def test_nb_recall_counts_the_later_lists_first_n_among_the_earlier_ones_first_k(n, k, expected):
    earlier, later = run("abcd", "ab", "efgh"), run("cxa", "ba", "hijk")
    assert nb_recall(earlier, later, questions=4, n=n, k=k).tolist() == expected


def test_random_lists_are_those_of_sets():
    random = np.random.default_rng(3)
    lists = [["".join(chr(97 + p) for p in random.permutation(26)[:20]) for _ in range(30)] for _ in range(2)]
    expected = [len({*a[:10]} & {*b[:5]}) / 5 for a, b in zip(*lists, strict=True)]
    assert nb_recall(run(*lists[0]), run(*lists[1]), questions=30, n=5, k=10).tolist() == pytest.approx(expected)
