"""Real processes, and kill -9 at every point."""

import fcntl
import os
import random
import signal
import time
from datetime import UTC, datetime

import pytest

from artifacts import locks, objects
from artifacts.gc import gc
from artifacts.locks import Holder
from artifacts.store import Request, Store

# Ten steps with a checkpoint each; prints a line per step. argv: store, seconds per step, log of all finished steps.
BUILD = """
    import sys, time
    from pathlib import Path
    from artifacts.keys import make_key
    from artifacts.store import Hooks, Request, Store

    def make(out, checkpoints):
        with open(out / "model.bin", "wb") as model:
            for step in range(10):
                done = checkpoints / str(step)
                if not done.exists():
                    time.sleep(float(sys.argv[2]))
                    with open(sys.argv[3], "a") as log:
                        log.write(f"{step}\\n")
                    done.with_suffix(".tmp").write_text("x" * step)
                    done.with_suffix(".tmp").replace(done)
                model.write(done.read_bytes() * 1000)
                model.flush()
                print(step, flush=True)
        return {"steps": 10}

    key = make_key("train", {}, {}, {}, {"tokens": "i0"}, {})
    waited = []
    built = Store(Path(sys.argv[1])).build(Request(key, node="stage1"), make, Hooks(on_wait=waited.append))
    holders = [f"{holder.stage} {holder.node} {holder.pid}" for holder in waited]
    print("hit" if built.hit else "built", built.ref.digest, *holders, flush=True)
"""


@pytest.fixture
def steps(tmp_path):
    return tmp_path / "steps"


@pytest.fixture
def train(key):
    return key(code={}, config={}, sources={})


def lines(process):
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out.splitlines()


def whole_objects(store):
    return [path.name for path in store.objects.iterdir() if objects.problem(path, path.name, deep=True) is None]


@pytest.mark.slow
def test_a_killed_build_continues_from_its_checkpoints(store, train, steps, python):
    process = python(BUILD, store.root, 0.1, steps)
    while process.stdout.readline() != "4\n":
        pass
    process.kill()
    process.wait()
    assert list(store.objects.iterdir()) == []
    assert list(store.keys.iterdir()) == []
    assert (store.work / train.hex / "out/model.bin").exists()
    last = lines(python(BUILD, store.root, 0, steps))[-1]
    assert last.startswith("built ")
    finished = [int(step) for step in steps.read_text().split()]
    assert sorted(set(finished)) == list(range(10))
    assert len(finished) <= 11  # the interrupted step may be there twice
    assert last.split()[1:] == whole_objects(store)
    assert list(store.work.iterdir()) == []


@pytest.mark.slow
def test_two_builds_at_once_build_once(store, steps, python):
    first, second = python(BUILD, store.root, 0.2, steps), python(BUILD, store.root, 0.2, steps)
    endings = [lines(process)[-1].split() for process in (first, second)]
    assert sorted(ending[0] for ending in endings) == ["built", "hit"]
    assert endings[0][1] == endings[1][1]
    assert steps.read_text().split() == [str(step) for step in range(10)]
    builder = first if endings[0][0] == "built" else second
    waiter = next(ending for ending in endings if ending[0] == "hit")
    assert waiter[2:] == ["train", "stage1", str(builder.pid)]


@pytest.mark.slow
def test_a_killed_holder_frees_its_lock_for_a_waiting_build(store, steps, python):
    first = python(BUILD, store.root, 0.5, steps)
    assert first.stdout.readline() == "0\n"
    second = python(BUILD, store.root, 0, steps)
    time.sleep(1)
    assert second.poll() is None
    first.kill()
    assert lines(second)[-1].startswith("built ")


@pytest.mark.slow
def test_a_forked_worker_does_not_keep_the_lock_of_a_killed_parent(tmp_path, python, until):
    script = """
        import os, sys, time
        from pathlib import Path
        from artifacts import locks
        with locks.hold(Path(sys.argv[1])):
            child = os.fork()
            if not child:
                time.sleep(60)
            print(child, flush=True)
            time.sleep(60)
    """
    lock = tmp_path / "it.lock"
    parent = python(script, lock)
    child = int(parent.stdout.readline())
    try:
        with locks.try_hold(lock) as free:
            assert not free
        parent.kill()
        until(lambda: is_free(lock))
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def is_free(lock):
    with locks.try_hold(lock) as free:
        return free


def test_a_waiting_build_reports_each_holder_once(tmp_path, python):
    script = """
        import sys, time
        from pathlib import Path
        from artifacts import locks
        with locks.hold(Path(sys.argv[1]), locks.holder("encode", "encode-1", {"tokens": "i0"})):
            print(flush=True)
            time.sleep(1)
    """
    process = python(script, tmp_path / "it.lock")
    process.stdout.readline()
    holders: list[Holder] = []
    with locks.hold(tmp_path / "it.lock", on_wait=holders.append):
        pass
    assert [(holder.stage, holder.node, holder.inputs, holder.pid) for holder in holders] == [
        ("encode", "encode-1", {"tokens": "i0"}, process.pid)
    ]
    assert abs((datetime.now(UTC) - datetime.fromisoformat(holders[0].since)).total_seconds()) < 60
    assert str(holders[0]).startswith(f"process {process.pid} on ")


def test_a_lock_whose_file_is_removed_while_it_is_taken_is_taken_again(tmp_path, monkeypatch):
    lock = tmp_path / "it.lock"
    flock = fcntl.flock

    def after_removal(descriptor, operation):
        monkeypatch.undo()
        lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", after_removal)
    with locks.hold(lock):
        assert not is_free(lock)
    assert is_free(lock)


def test_gc_keeps_what_is_being_built(store, train, key, writes, steps, python):
    tokens = store.build(Request(key(stage="tokens"), node="tokens", identity="key"), writes()).ref
    script = BUILD.replace('"tokens": "i0"', f'"tokens": "{tokens.identity}"')
    process = python(script, store.root, 0.3, steps)
    process.stdout.readline()
    assert gc(store, runs=0, days=0) == []
    assert store.lookup(key(stage="tokens")) == tokens
    process.kill()
    process.wait()
    removed = {removed.path.parts[0] for removed in gc(store, runs=0, days=0)}
    assert removed == {"work", "keys", "objects"}
    assert [path for path in store.root.glob("*/*") if path.parent != store.locks] == []


@pytest.mark.slow
def test_builds_killed_at_random_moments_end_in_the_same_object(store, steps, python):
    seed = random.Random(7)
    store.prepare()
    for _ in range(20):
        process = python(BUILD, store.root, 0.05, steps)
        time.sleep(seed.uniform(0.2, 1.2))
        process.kill()
        process.wait()
        assert len(whole_objects(store)) == len(list(store.objects.iterdir()))
        assert all(record.digest in whole_objects(store) for record in store.records())
    last = lines(python(BUILD, store.root, 0, steps))[-1].split()
    undisturbed = lines(python(BUILD, store.root.parent / "other", 0, steps))[-1].split()
    assert last[1] == undisturbed[1]
    assert Store(store.root).show("stage1").digest == last[1]


# Kills itself in the call with the number argv[2], among all calls that file the artifact.
COMMIT = """
    import os, signal, sys
    from pathlib import Path
    from artifacts import files, objects
    from artifacts.keys import make_key
    from artifacts.store import Request, Store

    calls = 0

    def deadly(function):
        def call(*arguments, **named):
            global calls
            calls += 1
            if calls == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)
        return call

    def make(out, checkpoints):
        for owner, names in ((files, ("write_file", "sync", "sha256")), (Path, ("rename", "chmod", "replace"))):
            for name in names:
                setattr(owner, name, deadly(getattr(owner, name)))
        (out / "model.bin").write_text("model")
        return {}

    store = Store(Path(sys.argv[1]))
    store.prepare()
    print(store.build(Request(make_key("train", {}, {}, {}, {}, {}), node="a"), make).ref.digest, calls)
"""


@pytest.mark.slow
def test_a_kill_at_any_point_of_filing_leaves_no_partial_artifact(tmp_path, python):
    digest, calls = lines(python(COMMIT, tmp_path / "undisturbed", 0))[0].split()
    assert int(calls) > 8
    for number in range(1, int(calls) + 1):
        store = Store(tmp_path / str(number))
        process = python(COMMIT, store.root, number)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert [path.name for path in store.objects.iterdir()] in ([], [digest])
        assert whole_objects(store) == [path.name for path in store.objects.iterdir()]
        assert len(store.records()) <= len(whole_objects(store))
        assert lines(python(COMMIT, store.root, 0))[0].split()[0] == digest
        assert whole_objects(store) == [digest]
        assert len(store.records()) == 1
