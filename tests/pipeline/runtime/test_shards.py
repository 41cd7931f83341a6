import os
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from hiding import forks
from machines import make_machine

from pipeline.errors import InputError
from pipeline.runtime import ranks, shards
from pipeline.runtime.spans import shard_spans
from pipeline.runtime.work import Job, Work, silent


def rows(start, stop, tick):
    tick(stop - start)
    return np.arange(start, stop)


def build(folder, spans, make, workers, *, device="cpu", progress=silent, numbers=None):
    fields = {"unit": "things", "progress": progress}
    shards.build_shards(folder, spans, make, device=device, workers=workers, numbers=numbers, **fields)


def whole(folder):
    return np.concatenate([np.load(path) for path in sorted(folder.glob("*.npy"))]).tolist()


def test_spans_cover_all_rows_once():
    assert shard_spans(7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert shard_spans(6, 3) == [(0, 3), (3, 6)]
    assert shard_spans(0, 3) == []


@pytest.mark.parametrize(("device", "workers"), [("cpu", 1), ("cpu", 3), ("cuda", 1)])  # nothing here touches a GPU
def test_shards_are_built_in_order_and_kept(tmp_path, device, workers):
    np.save(tmp_path / shards.name(1), np.array([30, 40, 50]))
    (tmp_path / shards.name(0)).with_suffix(".part").write_bytes(b"cut off")
    np.save(tmp_path / shards.name(2), np.arange(5))  # of another size: not this shard
    calls = []
    build(tmp_path, shard_spans(7, 3), rows, workers, device=device, progress=lambda *a: calls.append(a))
    assert whole(tmp_path) == [0, 1, 2, 30, 40, 50, 6]
    assert calls[-1][:3] == (7, 7, "things")


def test_only_the_requested_shards_of_a_job_are_built(tmp_path):
    spans = shard_spans(9, 3)
    for numbers, expected in (([2], [6, 7, 8]), ([2, 0], [0, 1, 2, 6, 7, 8]), (None, [*range(9)])):
        build(tmp_path, spans, rows, 2, numbers=numbers)
        assert whole(tmp_path) == expected
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"] * 3


def test_missing_shards_are_listed_by_size(tmp_path):
    spans = [(0, 2), (2, 9), (9, 10), (10, 17)]
    assert shards.missing(tmp_path, spans) == [1, 3, 0, 2]
    np.save(tmp_path / shards.name(1), np.arange(7))
    np.save(tmp_path / shards.name(3), np.arange(8))  # of another size
    assert shards.missing(tmp_path, spans) == [3, 0, 2]


@forks
def test_a_free_fork_takes_the_next_shard(tmp_path):
    """The largest shard is first, and no fork is idle while another has several shards left."""
    started = tmp_path / "begun"
    started.mkdir()

    def make(start, stop, tick):
        (started / f"{time.monotonic_ns()} {stop - start} {os.getpid()}").touch()
        while stop - start == 8 and len(list(started.iterdir())) < 6:
            time.sleep(0.01)
        return np.arange(start, stop)

    build(tmp_path, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 12), (12, 14)], make, 2)
    order = [path.name.split()[1:] for path in sorted(started.iterdir())]
    assert {order[0][0], order[1][0]} == {"8", "2"}
    large = next(pid for size, pid in order if size == "8")
    assert sum(pid != large for _, pid in order) == 5


def test_a_failed_write_leaves_no_file(tmp_path):
    with pytest.raises(OSError, match="full"), shards.whole(tmp_path / "one.npy"):
        raise OSError("full")
    assert [*tmp_path.iterdir()] == []


def test_a_new_run_removes_the_files_of_killed_writers(tmp_path, monkeypatch):
    """Files that another machine's worker may be writing stay, and so do finished shards of any age."""
    monkeypatch.setattr("pipeline.runtime.launch.launch", lambda *arguments: None)
    old, new, done = (tmp_path / name for name in ("shard-00000.ab.part", "shard-00001.cd.part", shards.name(1)))
    for path, seconds in ((old, 3700), (new, 3500), (done, 3700)):
        path.touch()
        os.utime(path, (time.time() - seconds,) * 2)
    job = Job("of:nothing", {}, tmp_path, [(0, 2)], "things")
    shards.finish(job, Work(tmp_path, tmp_path, make_machine(), silent), make_machine(), 1)
    assert {*tmp_path.iterdir()} == {new, done}


@pytest.mark.parametrize(
    ("device", "precision", "name"),
    [
        ("cpu", "float32", "lists"),
        ("cpu", "bfloat16", "lists-bfloat16"),
        ("cuda", "auto", "lists"),
        ("cuda", "bfloat16", "lists"),
        ("cuda", "float32", "lists-float32"),
        ("mps", "float32", "lists"),
    ],
)
def test_shards_of_another_precision_have_another_folder(tmp_path, device, precision, name):
    work = Work(tmp_path, tmp_path, make_machine(device=device, precision=precision), silent)
    assert shards.folder_of_model(work, "lists") == tmp_path / name


@forks
def test_a_worker_does_not_run_the_exit_hooks_of_its_parent(tmp_path):
    """For example under Prefect, whose exit hook waits for threads that a fork does not have."""
    program = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from pipeline.runtime import shards\n"
        "parent = os.getpid()\n"
        "threading._register_atexit(lambda: 1 / (os.getpid() == parent))\n"
        "make = lambda start, stop, tick: np.arange(start, stop)\n"
        "fields = {'unit': 'things', 'progress': lambda *a: None}\n"
        "shards.build_shards(Path(sys.argv[1]), [(0, 2)], make, device='cpu', workers=1, **fields)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert whole(tmp_path) == [0, 1]


@forks
def test_an_error_of_a_worker_is_raised_in_its_parent(tmp_path):
    def bad(start, stop, tick):
        raise InputError("a line") if start else ValueError("unforeseen")

    with pytest.raises(RuntimeError, match="unforeseen"):
        build(tmp_path, [(0, 1)], bad, 1)
    with pytest.raises(InputError, match="a line"):
        build(tmp_path, [(1, 2)], bad, 1)


def test_a_free_rank_takes_the_shards_that_a_slow_one_leaves(tmp_path, monkeypatch):
    """Each rank has the list of all shards that were missing when the job was cut: they begin at different times."""
    counts: Counter[str] = Counter()

    def counter(name):
        def add(n):
            counts[name] += n
            return counts[name]

        return add

    monkeypatch.setattr(ranks, "counter", counter)
    spans, progress, built = shard_spans(24, 3), [], []
    numbers = shards.missing(tmp_path, spans)

    def fast(start, stop, tick):
        built.append(start)
        return rows(start, stop, tick)

    def slow(start, stop, tick):
        build(tmp_path, spans, fast, 1, device="cuda", numbers=numbers, progress=lambda *a: progress.append(a[:2]))
        return rows(start, stop, tick)

    build(tmp_path, spans, slow, 1, device="cuda", numbers=numbers, progress=lambda *a: progress.append(a[:2]))
    assert built == [*range(3, 24, 3)]
    assert progress == [(n, 24) for n in range(3, 25, 3)]
    assert whole(tmp_path) == [*range(24)]


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY"])
def test_a_damaged_shard_is_built_again(tmp_path, content):
    spans = shard_spans(7, 3)
    build(tmp_path, spans, rows, 1)
    path = tmp_path / shards.name(1)
    path.write_bytes(content or path.read_bytes()[:-3])
    build(tmp_path, spans, rows, 1)
    assert whole(tmp_path) == [*range(7)]


@pytest.mark.parametrize(
    ("can_fork", "workers", "number", "ranks"), [(True, 3, 5, 1), (False, 3, 5, 3), (False, 3, 2, 2), (False, 0, 2, 1)]
)
def test_ranks_share_the_shards_where_a_process_must_not_fork(monkeypatch, tmp_path, can_fork, workers, number, ranks):
    launched = []
    monkeypatch.setattr("pipeline.runtime.launch.launch", lambda *arguments: launched.append(arguments))
    monkeypatch.setattr(shards.host, "can_fork", lambda: can_fork)
    machine = make_machine(device="cpu", ranks=1)
    shards.launch_sharing("of:nothing", {"a": 1}, machine, workers, number, silent, tmp_path)
    ((function, arguments, chosen, *_),) = launched
    assert (function, arguments, chosen.ranks) == ("of:nothing", {"a": 1, "workers": workers}, ranks)
