"""Vectors that do not fit into one GPU, on the CPU: the lists of slices, merged, are those of all vectors."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import make_machine
from vectors import data, longest

from pipeline.dense import sharded_search
from pipeline.dense.exact import exact_top_k
from pipeline.dense.list_records import records
from pipeline.dense.sharded_search import PARTIAL, Batches, build_lists, merged, slice_spans, turns
from pipeline.runtime import shards
from pipeline.runtime.launch import launch
from pipeline.runtime.work import silent

SUPPORT = Path(__file__).parents[2] / "support"
SPANS = [(0, 9), (9, 12), (12, 21), (21, 30), (30, 31)]
DEPTH = (130, 7)
"""Passages of a list: of the first two batches, and of the others. A fifth of the passages has 61."""
QUESTIONS, VECTORS = data(n=301, q=31, dimension=6)
VECTORS[-140:] = VECTORS[:140]  # equal scores in different slices
QUESTIONS[5] = 0  # equal scores of all passages


def depth(start: int) -> int:
    return DEPTH[start >= SPANS[2][0]]


def batches(numbers: list[int] | None = None, encode: Callable[[int, int], np.ndarray] | None = None) -> Batches:
    return Batches(
        SPANS,
        [*range(len(SPANS))] if numbers is None else numbers,
        encode or (lambda start, stop: QUESTIONS[start:stop]),
        depth,
    )


def room(slices: int) -> int:
    return -(-len(VECTORS) // slices) * VECTORS.shape[1] * 2


def build(
    folder: Path,
    slices: int,
    one: Batches,
    vectors: np.ndarray = VECTORS,
    progress: Any = silent,
    device: str = "cpu",
) -> None:
    build_lists(folder, one, vectors, longest(vectors), device=device, room=room(slices), progress=progress)


def assert_whole(folder: Path, vectors: np.ndarray = VECTORS) -> None:
    """The lists have the bytes of a search in all vectors on the processor, and no other file is left."""
    for number, (start, stop) in enumerate(SPANS):
        lists = np.load(folder / shards.name(number))
        rows, scores = exact_top_k(QUESTIONS[start:stop], vectors, depth(start), longest(vectors))
        assert lists["rows"].tobytes() == rows.tobytes()
        assert lists["scores"].tobytes() == scores.tobytes()
        assert np.isnan(lists["recall"]).all()
        assert lists["seconds"][0] > 0
    assert not (folder / PARTIAL).exists()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("slices", [1, 2, 3, 5])
def test_lists_of_slices_are_merged_to_the_bytes_of_all_vectors(tmp_path, slices, dtype, device):
    vectors = VECTORS.astype(dtype)
    assert len(slice_spans(vectors, room(slices))) == slices
    build(tmp_path, slices, batches(), vectors, device=device)
    assert_whole(tmp_path)


def test_slices_with_more_digits_than_float16_are_searched_by_the_processor(tmp_path, monkeypatch):
    vectors = VECTORS.copy()
    vectors[150] *= np.float32(1.0001)  # in the second of three slices
    load, fits = sharded_search.load, []

    def seen(*arguments: Any) -> Any:
        copied = load(*arguments)
        fits.append(copied is not None)
        return copied

    monkeypatch.setattr(sharded_search, "load", seen)
    build(tmp_path, 3, batches(), vectors)
    assert fits == [True, False, True]
    assert_whole(tmp_path, vectors)


def test_a_rank_copies_each_slice_once_and_holds_one_at_a_time(tmp_path, monkeypatch):
    load, held = sharded_search.load, []

    def counted(*arguments: Any) -> Any:
        assert [one() for one in held] == [None] * len(held)
        copied = load(*arguments)
        held.append(weakref.ref(copied))
        return copied

    monkeypatch.setattr(sharded_search, "load", counted)
    build(tmp_path, 3, batches())
    assert len(held) == 3


def test_merging_few_questions_at_a_time_gives_the_same_lists(monkeypatch):
    whole = records(exact_top_k(QUESTIONS, VECTORS, 20, longest(VECTORS)), 1.0, 0)
    parts = []
    for first, after in ((0, 100), (100, 110), (110, 301)):
        rows, scores = exact_top_k(QUESTIONS, VECTORS[first:after], 20, longest(VECTORS))
        parts.append(records((rows + first, scores), 1.0, 0))
    for number in (1, 10, 31, 1000):
        monkeypatch.setattr(sharded_search, "MERGED", number)
        lists = merged(parts, 20)
        assert lists["seconds"].sum() == 3
        for field in ("rows", "scores"):
            np.testing.assert_array_equal(lists[field], whole[field])


def test_slices_fit_and_cover_all_passages():
    for passages in (1, 7, 100, 301):
        vectors = np.zeros((passages, 8), np.float32)
        for size in (1, 16, 100, 999, 5000):
            spans = slice_spans(vectors, size)
            assert [row for start, stop in spans for row in range(start, stop)] == [*range(passages)]
            assert max(stop - start for start, stop in spans) <= max(1, size // 16)
    assert slice_spans(np.zeros((10, 4), np.float32), 64) == [(0, 5), (5, 10)]  # 8 would fit


def test_ranks_begin_at_different_slices_and_search_all():
    for slices, world, firsts in ((4, 2, [0, 2]), (3, 2, [0, 1]), (2, 4, [0, 0, 1, 1]), (1, 3, [0, 0, 0])):
        orders = [turns(slices, rank, world) for rank in range(world)]
        assert [order[0] for order in orders] == firsts
        assert all(sorted(order) == [*range(slices)] for order in orders)
    assert turns(5, 1, 2) == [2, 3, 4, 0, 1]


def test_parts_of_a_cluster_share_a_folder(tmp_path):
    build(tmp_path, 3, batches([1, 4]))
    assert [path.name for path in sorted(tmp_path.glob("*.npy"))] == [shards.name(1), shards.name(4)]
    assert (tmp_path / PARTIAL).exists()
    build(tmp_path, 2, batches([3, 0, 2]))  # on a machine with more memory
    assert_whole(tmp_path)


@pytest.mark.parametrize("slices", [1, 3])
def test_progress_ends_once_when_all_lists_exist(tmp_path, slices):
    calls = []

    def progress(done: int, total: int, unit: str, numbers: object = None) -> None:
        assert (total, unit) == (31, "questions")
        calls.append(done)

    build(tmp_path, slices, batches(), progress=progress)
    assert len(calls) == len(SPANS) * (slices + 1)
    assert calls == sorted(calls)
    assert calls.count(31) == 1
    assert calls[len(SPANS) * slices - 1] == 31 * slices // (slices + 1)


def in_child(folder: Path, slices: int, ranks: int = 1, kill_after: int = -1) -> None:
    folder.mkdir()
    inputs = folder / "inputs.npz"
    np.savez(inputs, questions=QUESTIONS, vectors=VECTORS, longest=longest(VECTORS))
    arguments = {"inputs": str(inputs), "folder": str(folder), "spans": SPANS, "depth": DEPTH, "room": room(slices)}
    machine = make_machine(ranks=ranks)
    launch("children:search_in_slices", {**arguments, "kill_after": kill_after}, machine, silent, folder)


@pytest.fixture
def _children_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")


@pytest.mark.usefixtures("_children_importable")
def test_a_kill_loses_only_the_unfinished_lists_of_a_slice(tmp_path, monkeypatch):
    killed = tmp_path / "killed"
    with pytest.raises(RuntimeError, match="SIGKILL"):
        in_child(killed, slices=3, kill_after=7)  # all batches of one slice, and two of the next
    finished = {path: path.stat().st_ino for path in (killed / PARTIAL).glob("slice-*/*.npy")}
    assert len(finished) == 7
    before = finished | {path: path.stat().st_ino for path in (killed / PARTIAL).glob("questions/*.npy")}
    after: dict[Path, int] = {}
    searched = []

    def counted(*arguments: Any, **named: Any) -> Any:
        after.update({path: path.stat().st_ino for path in before})
        searched.append(len(arguments[0]))
        return exact_top_k(*arguments, **named)

    calls: list[int] = []
    monkeypatch.setattr(sharded_search, "exact_top_k", counted)
    unencoded = batches(encode=lambda start, stop: pytest.fail("the vectors of all questions exist"))
    build(killed, 3, unencoded, progress=lambda done, *_: calls.append(done))
    assert len(searched) == 3 * len(SPANS) - 7
    assert after == before
    assert calls[0] > (31 + 9) // 4
    assert_whole(killed)


@pytest.mark.usefixtures("_children_importable")
def test_partial_lists_of_another_number_of_slices_are_not_used(tmp_path, monkeypatch):
    killed = tmp_path / "killed"
    with pytest.raises(RuntimeError):
        in_child(killed, slices=3, kill_after=7)
    build(killed, 2, batches())
    assert_whole(killed)


@pytest.mark.usefixtures("_children_importable")
def test_two_ranks_hold_different_slices(tmp_path):
    both = tmp_path / "both"
    in_child(both, slices=2, ranks=2)
    assert_whole(both)
    copies = [path.name.split("-")[1:] for path in (both / "copies").iterdir()]
    for rank, (first, _) in enumerate(slice_spans(VECTORS, room(2))):
        assert [str(rank), VECTORS[first].tobytes().hex()] in copies
