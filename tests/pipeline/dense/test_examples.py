import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import examples
from pipeline import pools as reading
from pipeline.collection import read_qrels
from pipeline.errors import InputError
from pipeline.examples import Draw
from pipeline.pools import Lists, Pools


def lists(*values) -> Lists:
    offsets = np.cumsum([0, *map(len, values)])
    return Lists(np.array([v for one in values for v in one], dtype=np.int32), offsets)


@st.composite
def pools(draw):
    """1-8 questions over 40 passages: some judged, and one or two kinds of negatives among the rest."""
    n, kinds = draw(st.integers(1, 8)), draw(st.integers(1, 2))
    judged, negatives = [], [[] for _ in range(kinds)]
    for _ in range(n):
        order = draw(st.permutations(range(40)))
        positives = draw(st.integers(1, 5))
        judged.append(order[:positives])
        for kind in negatives:
            kind.append(order[positives : positives + draw(st.integers(0, 12))])
    return Pools(np.arange(n) * 3, lists(*judged), tuple(lists(*kind) for kind in negatives), 40)


@given(pools(), st.integers(0, 9), st.integers(0, 3), st.integers(0, 5), st.integers(1, 5))
def test_each_example_once_an_epoch_and_no_judged_negative(drawn, negatives, considered, seed, batch_size):
    size = examples.epoch_size(drawn)
    edges = examples.batches(size, batch_size)
    batches = []
    for epoch in range(3):
        order, seen = examples.order(seed, epoch, size), []
        for start, stop in itertools.pairwise(edges):
            assert 0 < stop - start <= batch_size
            draw = Draw(negatives, considered, seed)
            batches.append(examples.batch(drawn, epoch, order[start:stop], draw))
            seen += list(batches[-1].queries_Q)
        counts = np.unique(seen, return_counts=True)
        assert counts[0].tolist() == drawn.queries.tolist()
        assert set(counts[1]) == {len(drawn.negatives)}
    for batch in batches:
        for query, passages in zip(batch.queries_Q, batch.passages_QN, strict=True):
            judged = drawn.judged[query // 3]
            assert passages[0] in judged[: considered or None]
            assert not np.isin(passages[1:], judged).any()
            assert len(set(passages)) == 1 + negatives


@given(pools(), st.integers(0, 5))
def test_excluded_are_the_other_judged_passages_of_the_batch(drawn, seed):
    batch = examples.batch(drawn, 0, np.arange(examples.epoch_size(drawn)), Draw(2, 0, seed))
    flat = batch.passages_QN.ravel()
    for row, query in enumerate(batch.queries_Q):
        expected = [p in drawn.judged[query // 3] and column != 3 * row for column, p in enumerate(flat)]
        assert batch.excluded_QP[row].tolist() == expected


@given(st.integers(1, 30), st.integers(1, 10), st.integers(0, 100))
def test_window_moves_over_the_whole_pool(size, number, seed):
    pool = np.arange(100, 100 + size)
    epochs = -(-size // number)
    windows = [examples.window(pool, number, epoch, seed, 3) for epoch in range(epochs)]
    assert all(len(w) == min(number, size) == len(set(w)) for w in windows)
    assert set(np.concatenate(windows)) == set(pool)


def test_twice_gives_each_question_one_example_of_either_kind():
    drawn = Pools(np.arange(2), lists([0], [1]), (lists([10, 11], [12, 13]), lists([20, 21], [22, 23])), 40)
    batch = examples.batch(drawn, 0, np.arange(4), Draw(2, 0, seed=5))
    kinds = sorted(zip(batch.queries_Q.tolist(), batch.passages_QN[:, 1:].min(1).tolist(), strict=True))
    assert kinds == [(0, 10), (0, 20), (1, 12), (1, 22)]


def test_filled_counts_what_pools_lack():
    drawn = Pools(np.arange(2), lists([0], [1]), (lists([10, 11, 12], []), lists([20], [22, 23])), 40)
    assert examples.filled(drawn, 2) == 0 + 2 + 1 + 0
    negatives = examples.batch(drawn, 0, np.arange(4), Draw(2, 0, seed=1)).passages_QN[:, 1:]
    assert negatives.shape == (4, 2)


def test_batches_are_a_function_of_seed_and_position():
    drawn = Pools(np.arange(9), lists(*[[i] for i in range(9)]), (lists(*[range(10, 30)] * 9),), 40)
    whole = examples.batch(drawn, 1, np.arange(9), Draw(3, 0, seed=2))
    part = examples.batch(drawn, 1, np.arange(4, 7), Draw(3, 0, seed=2))
    np.testing.assert_array_equal(whole.queries_Q[4:7], part.queries_Q)
    np.testing.assert_array_equal(whole.passages_QN[4:7], part.passages_QN)
    other = examples.batch(drawn, 1, np.arange(9), Draw(3, 0, seed=3))
    assert (whole.passages_QN != other.passages_QN).any()
    assert (examples.order(2, 0, 9) != examples.order(3, 0, 9)).any()


def read(world, mined=None, depth=0, mix="twice", max_queries=0, seed=0, first=None):
    return reading.read_pools(
        world.collection, first or world.bm25 / "negatives.parquet", depth, mined, mix, max_queries, seed
    )


def test_pools_follow_the_tables(world):
    found = read(world)
    assert found.queries.tolist() == list(range(24))
    assert found.judged[5].tolist() == [10, 11]
    assert (found.passages, set(found.negatives[0].lengths)) == (120, {9})
    assert set(read(world, depth=4).negatives[0].lengths) == {4}
    assert all(p % 2 == 0 and p // 2 != q for q in range(24) for p in found.negatives[0][q])


def test_judged_passages_and_strangers_leave_the_pool(world, tmp_path, write_negatives):
    rows = [("q0", p, "mined", rank, 1.0) for rank, p in enumerate(["d0-0", "d5-0", "nowhere", "d5-0", "d6-1"], 1)]
    write_negatives(
        tmp_path / "mined.parquet", [*rows, ("q59", "d1-0", "mined", 1, 1.0), ("q999", "d1-0", "mined", 1, 1.0)]
    )
    found = read(world, mined=tmp_path / "mined.parquet")
    assert found.negatives[1][0].tolist() == [10, 13]
    assert found.negatives[1].lengths[1:].sum() == 0
    pooled = read(world, mined=tmp_path / "mined.parquet", mix="pooled")
    assert len(pooled.negatives) == 1
    assert set(pooled.negatives[0][0]) == {*read(world).negatives[0][0], 10, 13}


def test_subsets_are_nested(world):
    small, large = (set(read(world, max_queries=n, seed=4).queries) for n in (5, 12))
    assert (len(small), len(large)) == (5, 12)
    assert small < large
    assert small != set(read(world, max_queries=5, seed=5).queries)


def test_official_triples_need_no_rank(world, tmp_path):
    from pipeline.collection import schemas, write_table

    rows = [("q0", "d5-0"), ("q0", "d7-0"), ("q0", "d6-0"), ("q1", "d1-1"), ("q1", "d9-0")]
    write_table(tmp_path / "negatives.parquet", schemas()["negatives"], rows)
    first = tmp_path / "negatives.parquet"
    assert read(world, first=first).negatives[0][0].tolist() == [10, 14, 12]
    assert read(world, first=first, depth=2).negatives[0][0].tolist() == [10, 14]
    assert read(world, first=first).negatives[0][1].tolist() == [18]


def test_no_training_question_is_an_input_error(world, tmp_path):
    import shutil

    from pipeline.collection import schemas, write_table

    shutil.copytree(world.collection, tmp_path / "collection")
    kept = [("dev", q, p, r) for q, judged in read_qrels(world.collection, ["dev"]).items() for p, r in judged.items()]
    write_table(tmp_path / "collection" / "qrels.parquet", schemas()["qrels"], kept)
    with pytest.raises(InputError, match="no training question"):
        reading.read_pools(tmp_path / "collection", world.bm25 / "negatives.parquet", 0, None, "twice", 0, 0)
    with pytest.raises(InputError, match="missing"):
        read(world, first=tmp_path / "nothing.parquet")


def test_pools_survive_a_file(world, tmp_path):
    found = read(world)
    reading.save_pools(found, tmp_path / "pools.npz")
    again = reading.load_pools(tmp_path / "pools.npz")
    assert again.passages == found.passages
    np.testing.assert_array_equal(again.judged.flat, found.judged.flat)
    np.testing.assert_array_equal(again.negatives[0].offsets, found.negatives[0].offsets)
