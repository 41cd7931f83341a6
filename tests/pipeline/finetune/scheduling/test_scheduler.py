"""The process that schedules batches: its results, what it keeps, and how its failures are reported."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice

import numpy as np
import psutil
import pytest
import schedules
from schedules import sizes

from benchmarks import abs as benchmark
from benchmarks.abs import CHILD, MOST
from pipeline.errors import InputError
from pipeline.finetune.scheduling import batch_search as scheduling
from pipeline.finetune.scheduling import process as scheduler
from pipeline.finetune.scheduling.process import BATCHES, ScheduleJob, hardness, pools, scheduled
from pipeline.finetune.scheduling.similarity import dense, nearest_neighbours, sparse

N = 203
JOB = ScheduleJob("greedy", sizes(N, 8), seed=3, epoch=2, width=4, depth=20, pool=None)
LONG = replace(JOB, method="beam", sizes=sizes(2000, 200), width=200)  # seconds for each batch
NONE = np.zeros((0, 2), np.int64)


def vectors(pairs, dimension):
    """Vectors in steps of 1/64: their inner products are exact, so threads and blocks of a product change nothing."""
    return [np.rint(64 * side) / np.float32(64) for side in benchmark.vectors(pairs, dimension)]


@pytest.fixture
def folder(tmp_path):
    for name, vectors_ND in zip(("questions", "passages"), vectors(N, 16), strict=True):
        np.save(tmp_path / f"{name}.npy", vectors_ND)
    return tmp_path


def collect(folder, job):
    with scheduled(folder, job) as batches:
        return [batch.tolist() for batch in batches]


def direct(similarity, job):
    improve = scheduling.greedy if job.method == "greedy" else scheduling.beam(job.width)
    return [b.tolist() for b in scheduling.schedule(similarity, job.sizes, job.seed, job.epoch, improve)]


def child():
    """The scheduler's process: the newest, because earlier tests may have left theirs."""
    return max(psutil.Process().children(), key=psutil.Process.create_time)


def test_the_process_gives_the_batches_of_the_functions(folder):
    questions, passages = vectors(N, 16)
    similarity = dense(questions @ passages.T, NONE)
    batches = collect(folder, JOB)
    assert batches == direct(similarity, JOB)
    assert sorted(pair for batch in batches for pair in batch) == list(range(N))
    measured = hardness(folder)
    assert measured["scheduled"] == schedules.hardness(similarity, batches) > measured["random"]
    beam = replace(JOB, method="beam")
    assert collect(folder, beam) == direct(sparse(nearest_neighbours(questions, passages, 20), N, NONE), beam)


def test_greedy_uses_lists_above_a_size(folder, monkeypatch):
    monkeypatch.setattr(scheduler, "DENSE", 50)
    similarity = scheduler.read_similarity(folder, np.arange(N), N, JOB)
    assert 20 * N < len(similarity.values) <= 4 * 20 * N


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_candidates_and_judgements_are_read_from_files(tmp_path, dtype):
    rng = np.random.default_rng(0)
    question, passage = rng.integers(0, N, (2, 3000)).astype(dtype)
    score = rng.random(3000).astype(np.float32)
    np.savez(tmp_path / "candidates.npz", question=question, passage=passage, score=score)
    before = collect(tmp_path, JOB)
    assert sorted(pair for batch in before for pair in batch) == list(range(N))
    first = before[0]
    np.save(tmp_path / "judged.npy", np.array([[i, j] for i in first for j in first]))
    (tmp_path / BATCHES).unlink()
    assert collect(tmp_path, JOB)[0] != first


def test_each_pool_is_scheduled_separately(folder):
    job = replace(JOB, pool=50)
    batches = collect(folder, job)
    assert sorted(pair for batch in batches for pair in batch) == list(range(N))
    assert [len(batch) for batch in batches] == job.sizes
    order = np.random.default_rng([job.seed, job.epoch, 1]).permutation(N)
    for first, last in pools(job.sizes, 50):
        of_pool = sorted(pair for batch in batches[first:last] for pair in batch)
        assert len(of_pool) <= 50
        start = sum(job.sizes[:first])
        assert of_pool == sorted(order[start : start + len(of_pool)])
    assert hardness(folder)["scheduled"] > hardness(folder)["random"]


def test_pools_hold_whole_batches():
    assert pools([3, 3, 3, 9, 1, 1], 6) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert pools([3, 3], None) == [(0, 2)]


@pytest.mark.slow
def test_a_killed_process_is_an_error_within_seconds(folder):
    started = time.monotonic()
    with scheduled(folder, JOB) as batches:
        child().kill()
        with pytest.raises(RuntimeError, match="killed by SIGKILL"):
            next(batches)
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_batches_found_before_a_kill_are_still_read(folder):
    expected = collect(folder, JOB)
    (folder / BATCHES).write_bytes((folder / BATCHES).read_bytes()[: 4 * sum(JOB.sizes[:5])])
    with scheduled(folder, JOB) as batches:
        child().kill()
        assert [batch.tolist() for batch in islice(batches, 5)] == expected[:5]
        with pytest.raises(RuntimeError, match="killed by SIGKILL"):
            next(batches)


@pytest.mark.parametrize("pool", [None, 50])
def test_a_resumed_epoch_has_the_same_batches(folder, pool):
    job = replace(JOB, pool=pool)
    expected = collect(folder, job)
    measured = hardness(folder)
    whole = (folder / BATCHES).read_bytes()
    for size in (0, 7, 4 * sum(job.sizes[:9]) + 3, len(whole)):
        (folder / BATCHES).write_bytes(whole[:size])
        assert collect(folder, job) == expected
        assert (folder / BATCHES).read_bytes() == whole
        assert hardness(folder) == measured


def test_an_invalid_schedule_is_searched_again(folder):
    expected = collect(folder, JOB)
    (folder / BATCHES).write_bytes(bytes(4 * sum(JOB.sizes[:9])))
    assert collect(folder, JOB) == expected


def test_another_job_does_not_resume_from_the_batches_of_the_first(folder):
    first = collect(folder, JOB)
    second = collect(folder, replace(JOB, epoch=3))
    assert first != second
    assert collect(folder, JOB) == first


def test_the_process_ends_with_the_block(folder):
    with scheduled(folder, JOB) as batches:
        process = child()
        next(batches)
    assert not process.is_running()


@pytest.mark.slow
def test_the_process_ends_with_its_parent(tmp_path):
    program = (
        "import sys, time, psutil\n"
        "from pathlib import Path\n"
        "from test_scheduler import LONG, scheduled\n"
        "with scheduled(Path(sys.argv[1]), LONG) as batches:\n"
        "    next(batches)\n"
        "    child = psutil.Process().children()[0]\n"
        "    child.suspend()\n"
        "    while child.status() != 'stopped': time.sleep(0.01)\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    for name, vectors_ND in zip(("questions", "passages"), vectors(sum(LONG.sizes), 16), strict=True):
        np.save(tmp_path / f"{name}.npy", vectors_ND)
    paths = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        process = psutil.Process(int(parent.stdout.readline()))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    try:
        process.wait(timeout=10)
    except psutil.TimeoutExpired:
        process.kill()
        raise


def test_errors_in_the_files_are_reported_in_one_line(folder, tmp_path):
    with pytest.raises(InputError, match=r"questions.npy: 203 vectors, .* 300 pairs"):
        collect(folder, replace(JOB, sizes=[100] * 3))
    np.save(folder / "passages.npy", np.full((N, 16), np.nan, np.float32))
    with pytest.raises(InputError, match="not finite"):
        collect(folder, JOB)
    np.savez(folder / "candidates.npz", question=[0, 203], passage=[1, 2], score=[1.0, 2.0])
    with pytest.raises(InputError, match=r"candidates.npz: pairs 0 to 203, .* 203 pairs"):
        collect(folder, JOB)


def test_a_failure_in_the_process_is_reported(folder):
    np.save(folder / "passages.npy", np.zeros((N, 3), np.float32))
    with pytest.raises(RuntimeError, match=r"failed, exit code 1:\n(.|\n)*matmul"):
        collect(folder, JOB)


@pytest.mark.slow
def test_lists_of_100_000_pairs_stay_within_2_gb(tmp_path):
    pairs = 100_000
    questions, passages = np.random.default_rng(0).integers(0, pairs, (2, 100 * pairs)).astype(np.int32)
    places = np.arange(100 * pairs) // 100
    np.savez(
        tmp_path / "candidates.npz",
        question=np.concatenate([places, questions]),
        passage=np.concatenate([passages, places]),
        score=np.random.default_rng(1).random(200 * pairs, dtype=np.float32),
    )
    job = replace(JOB, sizes=sizes(pairs, 8), depth=100)
    (tmp_path / "job.json").write_text(json.dumps(job.__dict__))
    completed = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(completed.stdout) < MOST
    assert hardness(tmp_path)["scheduled"] > hardness(tmp_path)["random"]
