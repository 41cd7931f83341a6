"""Exact search: its lists are exact and depend only on the vectors."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors import data, longest, reference

from pipeline.dense import exact_gpu
from pipeline.dense.exact import exact_top_k
from pipeline.dense.exact_gpu import load, room_for_vectors
from pipeline.dense.rescore import best_k, error_bound, rescore
from pipeline.errors import InputError


@pytest.mark.parametrize("number", [1, 2, 3, 40])
def test_lists_are_exact(number):
    questions, vectors = data(q=number)
    for k in (1, 7, 100):
        rows, scores = exact_top_k(questions, vectors, k, longest(vectors))
        expected_rows, expected_scores = reference(questions, vectors, k)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_array_equal(scores, expected_scores)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    passages=st.integers(1, 900),
    k=st.integers(1, 60),
    block=st.integers(1, 1000),
    batch=st.integers(1, 12),
    halves=st.booleans(),
    grid=st.booleans(),
)
def test_batches_blocks_and_types_do_not_change_a_byte(seed, passages, k, block, batch, halves, grid):
    """`grid`: vectors of few distinct integers, so that most scores are equal."""
    questions, vectors = data(n=passages, q=12, dimension=5, seed=seed)
    if grid:
        questions, vectors = np.rint(questions), np.rint(vectors)
    expected = reference(questions, vectors, k)
    stored = vectors.astype(np.float16) if halves else vectors
    for start in range(0, 12, batch):
        lists = exact_top_k(questions[start : start + batch], stored, k, longest(vectors), block=block)
        for one, whole in zip(lists, expected, strict=True):
            np.testing.assert_array_equal(one, whole[start : start + batch])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), share=st.sampled_from([0.0, 0.002, 0.3, 1.0]), block=st.integers(1, 1000))
def test_a_filtered_list_is_the_filtered_full_list(seed, share, block):
    questions, vectors = data(n=800, q=5, dimension=6, seed=seed)
    allowed = np.random.default_rng(seed).random(800) < share
    rows, scores = exact_top_k(questions, vectors, 20, longest(vectors), rows_A=np.flatnonzero(allowed), block=block)
    every_row, every_score = reference(questions, vectors, 800)
    for q in range(5):
        kept = allowed[every_row[q]]
        np.testing.assert_array_equal(rows[q], every_row[q][kept][:20])
        np.testing.assert_array_equal(scores[q], every_score[q][kept][:20])


def test_unaligned_vectors_give_the_same_lists():
    """The vectors in the file of a flat index are not aligned. NumPy would copy all of them at each call."""
    questions, vectors = data(n=3000, q=6)
    memory = np.zeros(vectors.nbytes + 1, np.uint8)
    unaligned = memory[1:].view(np.float32).reshape(vectors.shape)
    unaligned[:] = vectors
    assert not unaligned.flags.aligned
    for rows_A in (None, np.arange(0, 3000, 2)):
        lists = exact_top_k(questions, unaligned, 9, longest(vectors), rows_A=rows_A)
        np.testing.assert_array_equal(lists, exact_top_k(questions, vectors, 9, longest(vectors), rows_A=rows_A))


def test_more_equal_passages_than_candidates():
    questions, vectors = data(seed=3)
    vectors[2000:2100] = vectors[100]
    vectors[4000:4050] = vectors[100]
    questions[:5] = vectors[100] * 3
    for block in (0, 40, 999):
        rows, scores = exact_top_k(questions, vectors, 50, longest(vectors), block=block)
        np.testing.assert_array_equal(rows[0], [100, *range(2000, 2049)])
        np.testing.assert_array_equal(scores, reference(questions, vectors, 50)[1])


@pytest.mark.parametrize("order", [1, -1])
def test_passages_in_order_of_their_scores(order):
    """The floor excludes nothing if each block is better than all earlier blocks."""
    questions, vectors = data(n=3000, q=6)
    questions[:] = questions[0]
    vectors = vectors[np.argsort(vectors @ questions[0])[::order]]
    lists = exact_top_k(questions, vectors, 9, longest(vectors), block=500)
    np.testing.assert_array_equal(lists[0], reference(questions, vectors, 9)[0])


def test_threads_do_not_change_a_byte():
    from threadpoolctl import threadpool_limits

    questions, vectors = data(n=20_000, q=64, dimension=96)
    results = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads):
            results.append(exact_top_k(questions, vectors, 30, longest(vectors)))
    for other in results[1:]:
        np.testing.assert_array_equal(other[0], results[0][0])
        np.testing.assert_array_equal(other[1], results[0][1])


ROOM = 1 << 40
"""Bytes that a GPU has for vectors."""


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    passages=st.integers(1, 900),
    k=st.integers(1, 60),
    halves=st.booleans(),
    grid=st.booleans(),
    share=st.sampled_from([None, 0.0, 0.1, 1.0]),
)
def test_a_gpu_finds_the_same_lists_to_the_byte(seed, passages, k, halves, grid, share):
    """Its products, on the CPU."""
    questions, vectors = data(n=passages, q=12, dimension=5, seed=seed)
    if grid:
        questions, vectors = np.rint(questions), np.rint(vectors)
    stored = vectors.astype(np.float16) if halves else vectors * np.float32(1 if grid else 1.0001)
    rows_A = None if share is None else np.flatnonzero(np.random.default_rng(seed).random(passages) < share)
    with pytest.MonkeyPatch.context() as patch:
        for name, numbers in {"SCORES": 12 * 90, "NUMBERS": 5 * 80, "LOADED": 5 * 70, "RESCORED": 5 * 60 * 4}.items():
            patch.setattr(exact_gpu, name, numbers)
        on_gpu = load(stored, "cpu", ROOM)
        lists = exact_top_k(questions, stored, k, longest(stored), rows_A, on_gpu=on_gpu)
    assert on_gpu is not None
    for one, expected in zip(lists, exact_top_k(questions, stored, k, longest(stored), rows_A), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_a_gpu_searches_one_question_in_blocks_too():
    """A float32 copy of all vectors would not fit too."""
    _, vectors = data(n=300, dimension=8)
    on_gpu = load(vectors, "cpu", ROOM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_gpu, "NUMBERS", 8 * 100)
        assert [len(block) for _, block in on_gpu._blocks(1, None)] == [100, 100, 100]
        assert [len(block) for _, block in on_gpu._blocks(1, np.arange(0, 300, 2))] == [100, 50]


def test_float32_vectors_that_were_float16_stay_float16_on_a_gpu():
    _, halves = data(n=300, dimension=8)
    vectors = halves * np.float32(1.0001)
    sizes = {"float16": 2 * halves.size, "float32": 4 * halves.size}
    for stored, name in ((halves, "float16"), (vectors, "float32")):
        assert load(stored, "cpu", sizes["float32"])._resident_ND.dtype == getattr(torch, name)
        assert (load(stored, "cpu", sizes["float16"]) is None) == (name == "float32")
    assert load(halves, "cpu", sizes["float16"] - 1) is None


def test_only_the_last_block_has_more_digits(monkeypatch):
    monkeypatch.setattr(exact_gpu, "LOADED", 8 * 100)
    _, vectors = data(n=301, dimension=8)
    vectors[-1, -1] *= np.float32(1.0001)
    assert load(vectors, "cpu", ROOM)._resident_ND.dtype == torch.float32


def test_a_search_has_four_gibibytes_besides_the_vectors():
    assert room_for_vectors(3 << 30) == 0
    assert room_for_vectors(24 << 30) == 18 << 30


def test_sums_near_the_middle_of_two_float32_numbers_are_those_of_the_processor(monkeypatch):
    """Another order of a sum may round to the other neighbour. Here every GPU's sum is wrong, but within the bound."""
    questions, vectors = data(n=2000, q=8, dimension=64)
    expected = exact_top_k(questions, vectors, 50, longest(vectors))
    summed = torch.bmm
    again: list[int] = []

    def other_order(one, two):
        sums = summed(one, two)
        rounded = sums.float()
        above = torch.nextafter(rounded, torch.full_like(rounded, torch.inf)).double()
        middle = (rounded.double() + above) / 2
        nearest = (middle - sums).abs() < 1e-3 * (above - rounded.double())  # moved across the middle
        return torch.where(nearest, middle + (middle - sums), sums)

    def counted(questions_QD, rows_QC, vectors_ND):
        again.append(rows_QC.size)
        return rescore(questions_QD, rows_QC, vectors_ND)

    monkeypatch.setattr(torch, "bmm", other_order)
    monkeypatch.setattr(exact_gpu, "rescore", counted)
    # A bound that covers the difference: as of vectors with more digits.
    monkeypatch.setattr(exact_gpu, "_error", lambda *_: torch.full((8, 1), 1e-7, dtype=torch.float64))
    on_gpu = load(vectors, "cpu", ROOM)
    for one, other in zip(exact_top_k(questions, vectors, 50, longest(vectors), on_gpu=on_gpu), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert 0 < sum(again) < 8 * 70 / 2


@pytest.mark.gpu
@pytest.mark.parametrize("k", [100, 3000])
def test_a_real_gpu_finds_the_same_lists(k):
    torch.set_float32_matmul_precision("high")  # its rounding errors would exceed the bound
    questions, vectors = data(n=50_000, q=300, dimension=128)
    lists = exact_top_k(questions, vectors, k, longest(vectors), on_gpu=load(vectors, "cuda", ROOM))
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")
    expected = exact_top_k(questions, vectors, k, longest(vectors))
    np.testing.assert_array_equal(lists[0], expected[0])
    np.testing.assert_array_equal(lists[1], expected[1])


def test_rounding_stays_within_its_bound():
    questions, vectors = data(dimension=768, n=2000)
    exact_scores = rescore(questions, np.tile(np.arange(2000), (len(questions), 1)), vectors)
    difference = np.abs(exact_scores.astype(np.float64) - (questions @ vectors.T).astype(np.float64)).max(1)
    assert (difference < error_bound(questions, longest(vectors))).all()


@pytest.mark.parametrize("shift", [0, 1e30])
def test_ties_follow_passage_order(shift):
    rows = np.array([[9, 3, 5, 1], [2, 4, 1, 8]])
    scores = np.array([[1, 2, 1, 1], [-0.0, 0.0, -np.inf, -3]], dtype=np.float32) * np.float32(1 + shift)
    kept_rows, kept_scores = best_k(rows, scores, 3)
    assert kept_rows.tolist() == [[3, 1, 5], [2, 4, 8]]
    assert kept_scores.tolist() == [[scores[0, 1], scores[0, 0], scores[0, 0]], [0, 0, scores[1, 3]]]


def test_a_list_holds_all_passages_if_more_are_requested():
    questions, vectors = data(n=6)
    rows, scores = exact_top_k(questions, vectors, 100, longest(vectors))
    assert rows.shape == scores.shape == (40, 6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_questions_that_are_not_finite_are_refused(value):
    questions, vectors = data(n=6)
    questions[3, 2] = value
    with pytest.raises(InputError, match="not finite"):
        exact_top_k(questions, vectors, 3, longest(vectors))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell private memory")
def test_private_memory_does_not_grow_with_the_passages(tmp_path):
    """A search in a mapped file with eight times the passages has about the same peak of RssAnon."""
    peaks = []
    for passages in (100_000, 800_000):
        vectors = np.memmap(tmp_path / f"{passages}", np.float32, "w+", shape=(passages, 128))
        vectors[:] = np.random.default_rng(0).normal(size=(passages, 1))
        vectors.flush()
        peaks.append(peak_of_search(tmp_path / f"{passages}", passages))
    assert peaks[1] < peaks[0] + 20  # megabytes; the vectors themselves take 51 and 410
    assert peaks[0] < 100


SEARCH = """
import re, sys, threading, time
import numpy as np
from pipeline.dense import exact
from pipeline.dense.exact import exact_top_k

exact.COPIED = 1 << 20  # so that both collections have several blocks

def anonymous():
    with open("/proc/self/status") as file:
        return int(re.search(r"RssAnon:\\s*(\\d+) kB", file.read())[1]) / 1000

vectors = np.asarray(np.memmap(sys.argv[1], np.float32, "r", shape=(int(sys.argv[2]), 128)))
questions = np.random.default_rng(1).normal(size=(200, 128)).astype(np.float32)
peak, before, done = 0, anonymous(), False

def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.002)

thread = threading.Thread(target=watch)
thread.start()
exact_top_k(questions, vectors, 100, 100.0)
exact_top_k(questions, vectors, 100, 100.0, rows_A=np.arange(0, len(vectors), 2))
done = True
thread.join()
print(peak - before)
"""


def peak_of_search(path, passages):
    """Peak of private memory in megabytes, minus the memory in use before the search."""
    import subprocess
    import sys

    command = [sys.executable, "-c", SEARCH, str(path), str(passages)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_collapsed_encoder_needs_no_more_memory():
    """All passages and all scores are equal, so candidates never suffice."""
    vectors = np.ones((20_000, 16), np.float32)
    questions = np.random.default_rng(0).normal(size=(256, 16)).astype(np.float32)
    tracemalloc.start()
    rows, scores = exact_top_k(questions, vectors, 10, 4.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    np.testing.assert_array_equal(rows, np.tile(np.arange(10), (256, 1)))
    assert (scores == scores[:, :1]).all()
