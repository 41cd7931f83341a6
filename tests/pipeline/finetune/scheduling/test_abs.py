"""Adaptive Batch Scheduling against plain double loops."""

import numpy as np
import pytest
from schedules import hardness as hardness_of
from schedules import sizes as sizes_of

from pipeline.errors import InputError
from pipeline.finetune.scheduling import batch_search as scheduling
from pipeline.finetune.scheduling.similarity import SparseSimilarity, dense, sparse

NONE = np.zeros((0, 2), np.int64)


def drain(search):
    """(batches, hardness) of a schedule."""
    batches = []
    while True:
        try:
            batches.append(next(search))
        except StopIteration as end:
            return [batch.tolist() for batch in batches], end.value


def lists(scores, keep):
    question, passage = np.nonzero(keep)
    return sparse((question.astype(np.int32), passage.astype(np.int32), scores[question, passage]), len(scores), NONE)


def h(scores, batch):
    return sum(scores[i][j] for i in batch for j in batch if i != j)


def without(batch, pair):
    return [other for other in batch if other != pair]


def plain_greedy(scores, batch, unused):
    while unused:
        out = max(sorted(batch), key=lambda d: h(scores, without(batch, d)))
        rest = without(batch, out)
        into = max(sorted(unused), key=lambda d: h(scores, [*rest, d]))
        if h(scores, [*rest, into]) <= h(scores, batch):
            break
        batch, unused = [*rest, into], [*without(unused, into), out]
    return batch


def plain_beam(width, listed):
    def search(scores, batch, unused):
        while True:
            candidates = [d for d in sorted(unused) if any(listed[d][j] or listed[j][d] for j in batch)]
            outs = sorted(sorted(batch), key=lambda d: -h(scores, without(batch, d)))[:width]
            intos = sorted(candidates, key=lambda d: -h(scores, [*batch, d]))[:width]
            swaps = [(out, into) for out in outs for into in intos]
            if not swaps:
                return batch
            out, into = max(swaps, key=lambda swap: h(scores, [*without(batch, swap[0]), swap[1]]))
            if h(scores, [*without(batch, out), into]) <= h(scores, batch):
                return batch
            batch, unused = [*without(batch, out), into], [*without(unused, into), out]

    return search


def plain(scores, sizes, seed, epoch, search):
    """The definition as plain double loops."""
    batches = [batch.tolist() for batch in scheduling.random_batches(sizes, seed, epoch)]
    random = sum(h(scores, batch) for batch in batches)
    for k in range(len(batches)):
        home, before = batches[k], [list(batch) for batch in batches]
        chosen = search(scores, home, [pair for batch in batches[k + 1 :] for pair in batch])
        for out, into in zip(sorted(set(home) - set(chosen)), sorted(set(chosen) - set(home)), strict=True):
            later = next(batch for batch in batches[k + 1 :] if into in batch)
            later[later.index(into)] = out
        batches[k] = chosen
        if sum(h(scores, batch) for batch in batches) < random:
            batches = before
    return [sorted(batch) for batch in batches], (sum(h(scores, batch) for batch in batches), random)


def similarities(kind, n, seed):
    rng = np.random.default_rng(seed)
    if kind == "ties":
        return rng.integers(0, 3, (n, n)).astype(np.float32)
    if kind == "duplicates":
        few = rng.integers(-50, 50, (4, 4))
        which = rng.integers(4, size=n)
        return few[which][:, which].astype(np.float32)
    if kind == "negative":
        return -rng.integers(1, 1000, (n, n)).astype(np.float32)
    vectors = rng.standard_normal((2, n, 5)) + 2 * rng.standard_normal((4, 5))[rng.integers(4, size=n)]
    return np.rint(50 * vectors[0] @ vectors[1].T).astype(np.float32)


@pytest.mark.parametrize("kind", ["ties", "duplicates", "negative", "clusters"])
@pytest.mark.parametrize(("n", "batch", "seed"), [(24, 4, 0), (23, 5, 1), (22, 7, 2), (9, 9, 3), (12, 1, 4)])
def test_greedy_equals_the_plain_double_loop(kind, n, batch, seed):
    scores = similarities(kind, n, seed)
    sizes = sizes_of(n, batch)
    expected, sums = plain(scores.astype(int).tolist(), sizes, seed, 3, plain_greedy)
    batches, hardness = drain(scheduling.schedule(dense(scores, NONE), sizes, seed, 3, scheduling.greedy))
    assert batches == expected
    assert hardness == sums
    everything = lists(scores, np.ones_like(scores))
    assert drain(scheduling.schedule(everything, sizes, seed, 3, scheduling.greedy)) == (expected, sums)


@pytest.mark.parametrize("kind", ["ties", "clusters", "negative"])
@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_searches_over_lists_equal_the_plain_double_loop(kind, method, seed):
    scores = similarities(kind, 25, seed)
    keep = np.random.default_rng(seed).random((25, 25)) < 0.2
    np.fill_diagonal(keep, False)
    similarity, sizes = lists(scores, keep), sizes_of(25, 4)
    # A pair in no list is one grid step below the least value. All values are whole steps here, so sums are exact.
    steps = np.where(keep, similarity.grid.steps(scores), 0).tolist()
    improve = scheduling.greedy if method == "greedy" else scheduling.beam(3)
    expected, _ = plain(steps, sizes, seed, 0, plain_greedy if method == "greedy" else plain_beam(3, keep))
    batches, hardness = drain(scheduling.schedule(similarity, sizes, seed, 0, improve))
    assert batches == expected
    assert hardness.scheduled == pytest.approx(hardness_of(similarity, batches))


def test_beams_candidates_come_only_from_the_lists():
    calls = []

    class Spy(SparseSimilarity):
        def block(self, some, others):
            calls.append((some, others))
            return super().block(some, others)

    scores = similarities("clusters", 60, 0)
    similarity = lists(scores, np.random.default_rng(0).random((60, 60)) < 0.03)
    spy = Spy(similarity.columns, similarity.values, similarity.offsets, similarity.grid)
    batch, sums = np.arange(6), np.zeros(60, np.int64)
    for pair in batch:
        columns, values = similarity.row(pair)
        sums[columns] += values
    sums[batch] -= scheduling.HIDDEN
    assert scheduling.beam(50)(spy, sums, batch).tolist() != batch.tolist()
    leaving, entering = calls[0]
    assert set(entering) == {int(c) for pair in batch for c in similarity.row(pair)[0]} - set(batch)
    assert set(leaving) == set(batch)
    assert 10 < len(entering) < 50


@pytest.mark.parametrize("sizes", [sizes_of(61, 8), [3, 20, 1, 7, 30]])
@pytest.mark.parametrize("kind", ["ties", "clusters", "negative", "equal", "hubs"])
def test_each_pair_occurs_once_and_batches_are_at_least_as_hard_as_random_ones(kind, sizes):
    n = sum(sizes)
    if kind == "equal":
        scores = np.full((n, n), -3.0, np.float32)
    elif kind == "hubs":  # some pairs are near to all others: what one batch gains the others lose
        scores = np.add.outer(*np.random.default_rng(0).integers(0, 100, (2, n))).astype(np.float32)
    else:
        scores = similarities(kind, n, 0)
    similarity = dense(scores, NONE)
    for seed in range(4):
        batches, hardness = drain(scheduling.schedule(similarity, sizes, seed, 0, scheduling.greedy))
        assert sorted(pair for batch in batches for pair in batch) == list(range(n))
        assert [len(batch) for batch in batches] == list(sizes)
        random = hardness_of(similarity, scheduling.random_batches(sizes, seed, 0))
        scheduled = hardness_of(similarity, batches)
        assert (scheduled, random) == hardness
        assert scheduled > random if kind == "clusters" else scheduled >= random


def test_a_search_that_makes_an_epoch_easier_falls_back_to_the_random_batches():
    def worst(similarity, sums, batch):
        free = np.flatnonzero(sums >= 0)
        swapped = batch.copy()
        if len(free):
            swapped[sums[batch].argmax()] = free[sums[free].argmin()]
        return np.sort(swapped)

    scores = similarities("clusters", 60, 1)
    sizes = sizes_of(60, 6)
    _, hardness = drain(scheduling.schedule(dense(scores, NONE), sizes, 0, 0, worst))
    assert hardness.scheduled >= hardness.random


def test_batches_of_clustered_pairs_are_much_harder_than_random_ones():
    scores = similarities("clusters", 200, 0)
    _, hardness = drain(scheduling.schedule(dense(scores, NONE), [8] * 25, 0, 0, scheduling.greedy))
    assert hardness.scheduled > 1.5 * hardness.random > 0


def test_a_shared_judged_passage_does_not_bring_questions_together():
    scores = np.zeros((8, 8), np.float32)
    scores[0, 5] = scores[5, 0] = 100  # the same passage: judged for both

    def batches(judged):
        similarity = dense(scores, np.array(judged, np.int64).reshape(-1, 2))
        return drain(scheduling.schedule(similarity, [2] * 4, 1, 0, scheduling.greedy))[0]

    assert [0, 5] in batches([])
    assert [0, 5] not in batches([[0, 5], [5, 0]])


def test_the_batches_are_a_function_of_seed_and_epoch():
    similarity = dense(similarities("clusters", 40, 0), NONE)

    def run(seed, epoch):
        return drain(scheduling.schedule(similarity, [5] * 8, seed, epoch, scheduling.greedy))[0]

    assert run(0, 0) == run(0, 0)
    assert len({str(run(*key)) for key in ((0, 0), (0, 1), (1, 0))}) == 3


@pytest.mark.parametrize("known", [0, 1, 5, 10])
def test_batches_already_found_are_not_searched_again(known):
    scores, searched = similarities("clusters", 63, 5), []

    def counted(*arguments):
        searched.append(arguments)
        return scheduling.greedy(*arguments)

    similarity, sizes = dense(scores, NONE), sizes_of(63, 6)
    expected = drain(scheduling.schedule(similarity, sizes, 0, 0, scheduling.greedy))
    known_batches = [np.array(batch) for batch in expected[0][:known]]
    assert drain(scheduling.schedule(similarity, sizes, 0, 0, counted, known_batches)) == expected
    assert len(searched) == len(sizes) - known


def test_random_batches_hold_each_pair_once():
    random = scheduling.random_batches([2, 3, 1], 0, 0)
    assert [len(batch) for batch in random] == [2, 3, 1]
    assert sorted(np.concatenate(random)) == list(range(6))
    assert not np.array_equal(np.concatenate(random), np.concatenate(scheduling.random_batches([2, 3, 1], 0, 1)))


@pytest.mark.parametrize(("pairs", "batch", "expected"), [
    (10, 4, [3, 3, 4]), (8, 4, [4, 4]), (4, 4, [4]), (5, 4, [2, 3]),
])  # fmt: skip
def test_sizes_differ_by_at_most_one(pairs, batch, expected):
    assert sizes_of(pairs, batch) == expected


def test_a_batch_larger_than_the_collection_is_refused():
    with pytest.raises(InputError, match=r"batch_queries: 11 .* only 10 training pairs"):
        scheduling.check_pairs(10, 11)
