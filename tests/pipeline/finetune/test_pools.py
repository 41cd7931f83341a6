"""Pools of the training questions, read from the tables."""

import shutil

import numpy as np
import pytest

from pipeline.data.collection import read_qrels, schemas, write_table
from pipeline.errors import InputError
from pipeline.finetune.pools import load_pools, read_pools, save_pools


def read(world, first=None, depth=None, **more):
    return read_pools(world.collection, first or world.bm25, depth, **more)


def test_pools_follow_the_tables(world):
    pools = read(world)
    assert pools.queries.tolist() == list(range(24))
    assert pools.judged[5].tolist() == [10, 11]
    assert (pools.passages, set(pools.negatives[0].lengths)) == (120, {9})
    assert set(read(world, depth=4).negatives[0].lengths) == {4}
    assert all(p % 2 == 0 and p // 2 != q for q in range(24) for p in pools.negatives[0][q])


def test_judged_and_unknown_passages_are_not_in_the_pool(world, tmp_path, write_negatives):
    rows = [("q0", p, "mined", rank, 1.0) for rank, p in enumerate(["d0-0", "d5-0", "nowhere", "d5-0", "d6-1"], 1)]
    write_negatives(
        tmp_path / "negatives.parquet", [*rows, ("q59", "d1-0", "mined", 1, 1.0), ("q999", "d1-0", "mined", 1, 1.0)]
    )
    pools = read(world, mined=tmp_path)
    assert pools.negatives[1][0].tolist() == [10, 13]
    assert pools.negatives[1].lengths[1:].sum() == 0
    pooled = read(world, mined=tmp_path, pooled=True)
    assert len(pooled.negatives) == 1
    assert set(pooled.negatives[0][0]) == {*read(world).negatives[0][0], 10, 13}


def test_subsets_are_nested(world):
    small, large = (set(read(world, max_queries=n, seed=4).queries) for n in (5, 12))
    assert (len(small), len(large)) == (5, 12)
    assert small < large
    assert small != set(read(world, max_queries=5, seed=5).queries)


def test_official_triples_need_no_rank(world, tmp_path):
    rows = [("q0", "d5-0"), ("q0", "d7-0"), ("q0", "d6-0"), ("q1", "d1-1"), ("q1", "d9-0")]
    write_table(tmp_path / "negatives.parquet", schemas()["negatives"], rows)
    assert read(world, first=tmp_path).negatives[0][0].tolist() == [10, 14, 12]
    assert read(world, first=tmp_path, depth=2).negatives[0][0].tolist() == [10, 14]
    assert read(world, first=tmp_path).negatives[0][1].tolist() == [18]


def test_a_collection_without_training_questions_is_refused(world, tmp_path):
    shutil.copytree(world.collection, tmp_path / "collection")
    judgements = [
        ("dev", q, p, r) for q, judged in read_qrels(world.collection, ["dev"]).items() for p, r in judged.items()
    ]
    write_table(tmp_path / "collection" / "qrels.parquet", schemas()["qrels"], judgements)
    with pytest.raises(InputError, match="no training question"):
        read_pools(tmp_path / "collection", world.bm25)
    with pytest.raises(InputError, match="missing"):
        read(world, first=tmp_path)


def test_saved_pools_are_loaded_unchanged(world, tmp_path):
    pools = read(world)
    save_pools(pools, tmp_path / "pools.npz")
    again = load_pools(tmp_path / "pools.npz")
    assert again.passages == pools.passages
    np.testing.assert_array_equal(again.judged.flat, pools.judged.flat)
    np.testing.assert_array_equal(again.negatives[0].offsets, pools.negatives[0].offsets)
