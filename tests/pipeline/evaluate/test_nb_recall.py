"""nb-recall, compared with a calculation on sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.data.runs import Run, ranked
from pipeline.evaluate import measures
from pipeline.evaluate.measures import nb_recall


def run(*lists: str) -> Run:
    """One list per question. Each letter is a passage, best first."""
    rows = [(q, ord(p) - ord("a"), -rank) for q, passages in enumerate(lists) for rank, p in enumerate(passages)]
    return ranked(*(np.array(column) for column in zip(*rows, strict=True)))


def of_sets(earlier: Sequence[Sequence[Any]], later: Sequence[Sequence[Any]], n: int, k: int) -> float:
    """nb-recall n@k of lists by question, averaged over the questions."""
    return sum(len({*a[:k]} & {*b[:n]}) for a, b in zip(earlier, later, strict=True)) / n / len(earlier)


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [
        (2, 3, [0.5, 1.0, 0.0, 0.0]),
        (2, 1, [0.0, 0.5, 0.0, 0.0]),
        (1, 4, [1.0, 1.0, 1.0, 0.0]),  # the first of the third question is fourth in the earlier list
        (4, 4, [0.5, 0.5, 0.25, 0.0]),  # a list shorter than n is still divided by n
    ],
)
def test_the_first_n_of_the_later_list_are_counted_in_the_first_k_of_the_earlier_one(monkeypatch, n, k, expected):
    monkeypatch.setattr(measures, "NB_RECALL_DEPTHS", (k,))
    runs = {"stage1": run("abcd", "ab", "efgh"), "stage2": run("cxa", "ba", "hijk")}
    [row] = nb_recall(runs, 4, [n])
    assert row["recall"] == [pytest.approx(np.mean(expected), abs=1e-6)]


def test_each_dense_run_is_compared_with_the_one_before(monkeypatch):
    monkeypatch.setattr(measures, "NB_RECALL_DEPTHS", (1, 2, 4, 8))
    runs = {"pretrained": run("abcd", "abcd"), "stage1": run("dcba", "efgh"), "stage2": run("dc", "ef")}
    rows = nb_recall(runs, 2, [2, 3])
    assert rows == [
        {"earlier": "pretrained", "later": "stage1", "n": 2, "questions": 2, "k": [1, 2, 4], "recall": [0, 0, 0.5]},
        {"earlier": "pretrained", "later": "stage1", "n": 3, "questions": 2, "k": [1, 2, 4],
         "recall": [0, 0.166667, 0.5]},
        {"earlier": "stage1", "later": "stage2", "n": 2, "questions": 2, "k": [1, 2, 4], "recall": [0.5, 1, 1]},
    ]  # fmt: skip
    assert nb_recall(runs, 2, [5]) == []
    assert nb_recall({"stage1": runs["stage1"]}, 2, [2]) == []


def test_a_question_that_one_run_lacks_counts_as_zero(monkeypatch):
    monkeypatch.setattr(measures, "NB_RECALL_DEPTHS", (2,))
    [row] = nb_recall({"stage1": run("ab", "cd"), "stage2": run("ab")}, 3, [2])
    assert (row["recall"], row["questions"]) == ([0.333333], 3)


def test_many_depths_at_once_equal_each_depth_alone():
    random = np.random.default_rng(4)
    lists = [[random.permutation(300)[:200] for _ in range(20)] for _ in range(2)]
    earlier, later = (
        ranked(np.repeat(np.arange(20), 200), np.concatenate(passages), -np.tile(np.arange(200.0), 20))
        for passages in lists
    )
    for row in nb_recall({"stage1": earlier, "stage2": later}, 20, [50, 100]):
        assert row["k"] == [50, 100, 200]
        means = [of_sets(*lists, row["n"], k) for k in row["k"]]
        assert row["recall"] == pytest.approx(means, abs=1e-6)
        assert means[-1] > means[0] > 0
