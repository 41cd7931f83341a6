import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data import barred
from pipeline.data.judged import PassageLists
from pipeline.finetune import examples
from pipeline.finetune.examples import Draw
from pipeline.finetune.pools import Pools


def lists(*values) -> PassageLists:
    offsets = np.cumsum([0, *map(len, values)])
    return PassageLists(np.array([v for one in values for v in one], dtype=np.int32), offsets)


def barred_pairs(listed: PassageLists) -> barred.Barred:
    """Bars the listed passages for each question; no two passages have the same text."""
    n, number = len(listed), np.arange(40, dtype=np.uint64)
    source_n, question_n = np.full(n, -1), np.arange(100, 100 + n, dtype=np.uint64)
    pairs = np.arange(n).repeat(listed.lengths), listed.flat
    return barred.between(barred.Texts(number, number), question_n, source_n, *pairs)


def build_pools(queries, judged, negatives, unfit=None) -> Pools:
    """Pools over 40 passages; only the judged passages are barred, or those of `unfit`."""
    return Pools(queries, judged, barred_pairs(judged if unfit is None else unfit), negatives, 40)


def barred_of(drawn: Pools, place: int) -> np.ndarray:
    return np.flatnonzero(barred.reasons(drawn.barred, np.full(40, place), np.arange(40)) != barred.FREE)


@st.composite
def pools(draw):
    """1-8 questions over 40 passages: some judged, some barred, one or two kinds of negatives among the rest."""
    n, kinds = draw(st.integers(1, 8)), draw(st.integers(1, 2))
    judged, unfit, negatives = [], [], [[] for _ in range(kinds)]
    for _ in range(n):
        order = draw(st.permutations(range(40)))
        positives = draw(st.integers(1, 5))
        judged.append(order[:positives])
        first = positives + draw(st.integers(0, 5))
        unfit.append(order[:first])
        for kind in negatives:
            kind.append(order[first : first + draw(st.integers(0, 12))])
    return build_pools(np.arange(n) * 3, lists(*judged), tuple(lists(*kind) for kind in negatives), lists(*unfit))


@given(pools(), st.integers(0, 9), st.none() | st.integers(1, 3), st.integers(0, 5), st.integers(1, 5))
def test_each_example_occurs_once_per_epoch_without_barred_negatives(drawn, negatives, considered, seed, batch_size):
    size = examples.epoch_size(drawn)
    edges = examples.batches(size, batch_size)
    batches = []
    for epoch in range(3):
        order, seen = examples.epoch_order(seed, epoch, size), []
        for start, stop in itertools.pairwise(edges):
            assert 0 < stop - start <= batch_size
            draw = Draw(negatives, considered, seed)
            batches.append(examples.draw_batch(drawn, epoch, order[start:stop], draw))
            seen += list(batches[-1].queries_Q)
        counts = np.unique(seen, return_counts=True)
        assert counts[0].tolist() == drawn.queries.tolist()
        assert set(counts[1]) == {len(drawn.negatives)}
    for batch in batches:
        for query, passages in zip(batch.queries_Q, batch.passages_QN, strict=True):
            assert passages[0] in drawn.judged[query // 3][:considered]
            assert not np.isin(passages[1:], barred_of(drawn, query // 3)).any()
            assert len(set(passages)) == 1 + negatives


@given(pools(), st.integers(0, 5))
def test_excluded_are_the_other_barred_passages_of_the_batch(drawn, seed):
    batch = examples.draw_batch(drawn, 0, np.arange(examples.epoch_size(drawn)), Draw(2, None, seed))
    flat = batch.passages_QN.ravel()
    for row, query in enumerate(batch.queries_Q):
        unfit = {*barred_of(drawn, query // 3).tolist()}
        expected = [p in unfit and column != 3 * row for column, p in enumerate(flat)]
        assert batch.excluded_QP[row].tolist() == expected


@given(st.integers(1, 30), st.integers(1, 10), st.integers(0, 100))
def test_the_window_moves_over_the_whole_pool(size, number, seed):
    pool = np.arange(100, 100 + size)
    epochs = -(-size // number)
    windows = [examples.window(pool, number, epoch, seed, 3) for epoch in range(epochs)]
    assert all(len(w) == min(number, size) == len(set(w)) for w in windows)
    assert set(np.concatenate(windows)) == set(pool)


def test_two_kinds_of_negatives_give_each_question_one_example_of_each():
    drawn = build_pools(np.arange(2), lists([0], [1]), (lists([10, 11], [12, 13]), lists([20, 21], [22, 23])))
    batch = examples.draw_batch(drawn, 0, np.arange(4), Draw(2, None, seed=5))
    kinds = sorted(zip(batch.queries_Q.tolist(), batch.passages_QN[:, 1:].min(1).tolist(), strict=True))
    assert kinds == [(0, 10), (0, 20), (1, 12), (1, 22)]


def test_filled_counts_the_negatives_that_pools_lack():
    drawn = build_pools(np.arange(2), lists([0], [1]), (lists([10, 11, 12], []), lists([20], [22, 23])))
    assert examples.filled(drawn, 2) == 0 + 2 + 1 + 0
    negatives = examples.draw_batch(drawn, 0, np.arange(4), Draw(2, None, seed=1)).passages_QN[:, 1:]
    assert negatives.shape == (4, 2)


def test_batches_are_a_function_of_seed_and_position():
    drawn = build_pools(np.arange(9), lists(*[[i] for i in range(9)]), (lists(*[range(10, 30)] * 9),))
    whole = examples.draw_batch(drawn, 1, np.arange(9), Draw(3, None, seed=2))
    part = examples.draw_batch(drawn, 1, np.arange(4, 7), Draw(3, None, seed=2))
    np.testing.assert_array_equal(whole.queries_Q[4:7], part.queries_Q)
    np.testing.assert_array_equal(whole.passages_QN[4:7], part.passages_QN)
    other = examples.draw_batch(drawn, 1, np.arange(9), Draw(3, None, seed=3))
    assert (whole.passages_QN != other.passages_QN).any()
    assert (examples.epoch_order(2, 0, 9) != examples.epoch_order(3, 0, 9)).any()
