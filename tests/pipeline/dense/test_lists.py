"""The lists of a search, batch by batch: kept, computed anywhere, and assembled to the same bytes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoders import ENCODER
from indexes import EFFORT, FLAT

from pipeline.dense.encode import EncodeConfig, encode
from pipeline.dense.index import index
from pipeline.dense.search import SearchConfig, search
from pipeline.dense.search_lists import search_lists
from pipeline.runtime import shards
from pipeline.runtime.work import Job, Machine, Work

SEARCH = SearchConfig(
    splits=["test", "train"], unjudged_train_questions=False, depth=20, train_depth=10, approximate=EFFORT
)
BATCHES = 4 + 5  # of 18 and of 24 questions
DIMENSION = 16


@pytest.fixture
def indexed(world, work, inline) -> Path:
    embeddings, indexed = work("embeddings"), work("index")
    config = EncodeConfig(passage_tokens=40, shard_passages=32)
    encode(config, ENCODER, world.collection, world.tokens, world.checkpoint, embeddings)
    index(FLAT, world.collection, embeddings.out, indexed)
    return indexed.out


@pytest.fixture
def find(world, indexed, monkeypatch) -> Callable[[Work], dict]:
    """Searches in batches of five."""
    monkeypatch.setattr("pipeline.dense.search.SHARD", {"cpu": 5, "cuda": 5})
    return lambda work: search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, indexed, work)


def lists(work: Work) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in (work.checkpoints / "lists-5").glob("*.npy")}


def same(one: Work, two: Work) -> bool:
    return all(path.read_bytes() == (two.out / path.name).read_bytes() for path in one.out.iterdir())


def test_a_search_resumes_with_its_finished_lists(find, work, monkeypatch):
    whole, cut = work("whole"), work("cut")
    assert find(whole)["questions"] == 42
    kept = lists(whole)
    assert len(kept) == BATCHES
    (cut.checkpoints / "lists-5").mkdir()
    for name in [*kept][:4]:
        (cut.checkpoints / "lists-5" / name).write_bytes((whole.checkpoints / "lists-5" / name).read_bytes())
    before = lists(cut)
    find(cut)
    assert before.items() <= lists(cut).items()
    assert same(whole, cut)
    monkeypatch.setattr("pipeline.modeling.biencoder.frozen_encoders", lambda folder: pytest.fail("no model is needed"))
    find(replace(cut, out=work("again").out))


def test_lists_of_another_batch_size_are_not_reused(find, work, monkeypatch):
    done = work()
    find(done)
    monkeypatch.setattr("pipeline.dense.search.SHARD", {"cpu": 6, "cuda": 6})
    fresh = replace(done, out=work("fresh").out)
    find(fresh)
    assert sorted(path.name for path in done.checkpoints.iterdir()) == ["lists-5", "lists-6"]


def test_parts_searched_elsewhere_give_the_same_run(find, work):
    here, there = work("here"), work("there")
    find(here)
    searched = []

    def elsewhere(job: Job, machine: Machine) -> None:
        assert shards.missing(job.folder, job.spans) == [
            *range(3),
            *range(4, 8),
            8,
            3,
        ]  # batches of 5 questions, except one of 4 and one of 3
        for numbers in (shards.missing(job.folder, job.spans)[::2], shards.missing(job.folder, job.spans)[1::2]):
            arguments: dict[str, Any] = {**job.arguments, "workers": 1, "numbers": numbers}
            search_lists(progress=lambda *a: None, device="cpu", **arguments)
            searched.append(numbers)

    find(replace(there, elsewhere=elsewhere))
    assert len(searched) == 2
    assert same(here, there)


@pytest.fixture
def small_gpu(monkeypatch) -> Callable[[int], None]:
    """Returns a function that sets how many float16 vectors, of 120, fit into a GPU; the CPU does its work."""

    def set_room(passages: int) -> None:
        size = 2 * DIMENSION * passages
        monkeypatch.setattr("pipeline.dense.search_lists.gpu_room", lambda device: size)
        monkeypatch.setattr("pipeline.dense.sharded_search.LEAST", 1)

    return set_room


def test_a_search_in_slices_gives_the_same_run(find, work, small_gpu, monkeypatch):
    whole, sliced = work("whole"), work("sliced")
    find(whole)
    small_gpu(50)
    monkeypatch.setattr("pipeline.dense.search_lists.counted_top_k", lambda *_: pytest.fail("all vectors at once"))
    metrics = find(sliced)
    assert same(whole, sliced)
    assert len(lists(sliced)) == BATCHES
    assert metrics["questions_per_second"] > 0
    assert sorted(path.suffix for path in (sliced.checkpoints / "lists-5").iterdir()) == [".npy"] * BATCHES


def test_a_search_in_slices_is_finished_by_another_number_of_slices(find, work, small_gpu, monkeypatch):
    whole, cut = work("whole"), work("cut")
    find(whole)
    small_gpu(50)
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.dense.sharded_search._merger", lambda *_: lambda *_: int("a kill"))
        with pytest.raises(ValueError, match="a kill"):
            find(cut)
    assert lists(cut) == {}
    small_gpu(20)
    find(cut)
    assert same(whole, cut)


def test_recall_is_measured_on_the_first_questions_whatever_the_batch_size(world, indexed, work, monkeypatch):
    monkeypatch.setattr("pipeline.dense.search_lists.COMPARED", 7)
    monkeypatch.setattr("pipeline.dense.search.SHARD", {"cpu": 5, "cuda": 5})
    graph, done = work("graph"), work("search")
    hnsw = FLAT.model_copy(update={"kind": "hnsw"})
    index(hnsw, world.collection, indexed.parents[1] / "embeddings" / "out", graph)
    metrics = search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, graph.out, done)
    recalls = [np.load(path)["recall"] for path in sorted((done.checkpoints / "lists-5").glob("*.npy"))]
    assert [int((~np.isnan(recall[:, 0])).sum()) for recall in recalls] == [5, 2] + [0] * (BATCHES - 2)
    assert metrics["recall"] == np.concatenate([recalls[0], recalls[1][:2]])[:, 0].mean().round(4)


@pytest.mark.parametrize("passages", [50, 120])
def test_an_approximate_index_on_a_gpu_has_the_same_run(world, indexed, work, small_gpu, passages):
    """Whether or not the vectors that its lists are compared with fit."""
    graph, here, there = work("graph"), work("here"), work("there")
    hnsw = FLAT.model_copy(update={"kind": "hnsw"})
    index(hnsw, world.collection, indexed.parents[1] / "embeddings" / "out", graph)
    inputs = world.collection, world.tokens, world.checkpoint, graph.out
    expected = search(SEARCH, ENCODER, *inputs, here)
    small_gpu(passages)
    metrics = search(SEARCH, ENCODER, *inputs, there)
    assert {**metrics, "questions_per_second": 0} == {**expected, "questions_per_second": 0}
    assert same(here, there)
