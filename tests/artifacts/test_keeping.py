"""Records of runs, verification, and garbage collection."""

import hashlib
import json
import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from artifacts import locks
from artifacts.errors import StoreError
from artifacts.gc import gc
from artifacts.live import protect_from_gc
from artifacts.runs import SERIES, readable_runs, record_run, runs
from artifacts.store import Request, Store
from artifacts.verify import verify


@pytest.fixture
def three(store, key, writes):
    """Artifacts of three configurations, all last used ten days ago."""
    refs = [store.build(Request(key(config={"n": n}), node=f"n{n}"), writes(f"model {n}")).ref for n in range(3)]
    for ref in refs:
        age(store.keys / f"{ref.key}.json", 10)
    return refs


def age(path, days):
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


def digests(store):
    return {path.name for path in store.objects.iterdir()}


def test_runs_are_recorded(store, three, tmp_path):
    assert runs(store) == []
    record_run(store, "pydocs", {"a": three[0]}, {"until": None, "recipe": {"steps": 3}})
    path = record_run(store, "marco/x", {"a": three[0], "b": three[1]}, {})
    assert path.name.endswith("Z-marco_x.json")
    assert runs(store)[0].nodes == {"a": three[0], "b": three[1]}
    assert [run.details for run in runs(store, "pydocs")] == [{"until": None, "recipe": {"steps": 3}}]
    assert runs(store, "other") == []
    assert [run.name for run in runs(store)] == ["marco/x", "pydocs"]


def test_a_run_recorded_again_as_it_continues_is_one_run(store, three):
    started = datetime.now(UTC)
    for count in (1, 2):
        record_run(store, "pydocs", {str(n): three[n] for n in range(count)}, {}, started)
    assert [set(run.nodes) for run in runs(store)] == [{"0", "1"}]
    assert runs(store)[0].created == started.isoformat()


@pytest.mark.parametrize(
    "text", ["{half", "[]", "{}", '{"name": "x", "created": "", "nodes": {"a": {}}, "details": {}}']
)
def test_a_damaged_run_record_is_skipped(store, three, text):
    record_run(store, "pydocs", {"a": three[0]}, {})
    (store.runs / "20990101T000000.000000Z-x.json").write_text(text)
    assert [run.name for run in runs(store)] == ["pydocs"]


def test_gc_keeps_what_the_newest_runs_name(store, three):
    record_run(store, "old", {"a": three[0]}, {})
    record_run(store, "new", {"a": three[1]}, {})
    removed = gc(store, runs=1, days=3)
    assert digests(store) == {three[1].digest}
    assert [record.key for record in store.records()] == [three[1].key]
    assert sum(one.bytes for one in removed) > 0
    assert {one.why for one in removed} == {"train: not used lately", "no key is left"}
    assert verify(store) == []
    assert gc(store, runs=1, days=3) == []


def test_gc_keeps_the_run_that_trained_the_model_of_a_kept_update(store, three):
    record_run(store, "notes", {"a": three[0]}, {})
    (trained,) = runs(store)
    for n in (1, 2):
        record_run(store, "notes", {"a": three[n]}, {SERIES: trained.created})
    gc(store, runs=1, days=3)
    assert digests(store) == {three[0].digest, three[2].digest}


def test_gc_keeps_what_was_used_recently(store, three, key):
    store.lookup(key(config={"n": 2}))
    gc(store, runs=0, days=3)
    assert digests(store) == {three[2].digest}
    assert gc(store, runs=0, days=100) == []


def test_gc_keeps_an_object_that_another_key_names(store, three, key, writes):
    same = store.build(Request(key(config={"n": 9}), node="a"), writes("model 0")).ref
    gc(store, runs=0, days=3)
    assert digests(store) == {same.digest} == {three[0].digest}


def test_a_dry_gc_reports_the_same_and_removes_nothing(store, three):
    def everything():
        return sorted(path for path in store.root.rglob("*") if path.parent != store.locks)

    before = everything()
    removals = gc(store, runs=0, days=3, dry_run=True)
    assert everything() == before
    assert gc(store, runs=0, days=3) == removals
    assert digests(store) == set()


def test_gc_removes_leftovers(store, three, key):
    def fail(out, checkpoints):
        (checkpoints / "step").write_text("x" * 1000)
        raise RuntimeError

    for stage in ("stale", "fresh"):
        with pytest.raises(RuntimeError):
            store.build(Request(key(stage=stage), node="a"), fail)
    left = [store.work / key(stage="stale").hex, *(store.work / key(stage="stale").hex).rglob("*")]
    size = sum(path.stat().st_size for path in left if path.is_file())
    for path in left:
        age(path, 10)
    (three[0].path / "model.bin").unlink()
    store.lookup(key(config={"n": 0}))
    half = store.keys / ".half.json.host.1.1"
    store.verified.mkdir(exist_ok=True)
    for path in (half, store.verified / ".half.host.1.1"):
        path.write_text("{")
        age(path, 10)
    removed = gc(store, runs=0, days=3)
    assert [path.name for path in store.work.iterdir()] == [key(stage="fresh").hex]
    assert list(store.broken.iterdir()) == list(store.keys.iterdir()) == list(store.objects.iterdir()) == []
    assert list(store.verified.iterdir()) == []
    assert next(one for one in removed if one.path.parts[0] == "work").bytes == size >= 1000


def test_gc_keeps_a_locked_key_and_what_its_builder_reads(store, three):
    holder = locks.holder("train", "stage2", {"start": three[1].identity})
    with locks.hold(store.lock_file(three[0].key), holder):
        gc(store, runs=0, days=0)
    assert digests(store) == {three[0].digest, three[1].digest}


def test_gc_finishes_after_one_that_was_killed_between_moving_and_removing(store, three):
    half = store.broken / three[0].digest
    half.mkdir()
    (half / "model.bin").write_text("half removed")
    gc(store, runs=0, days=0)
    assert list(store.objects.iterdir()) == list(store.broken.iterdir()) == []


def test_gc_of_a_missing_store_creates_none(store):
    assert gc(store, runs=0, days=0) == []
    assert not store.root.exists()


def test_a_whole_store_has_no_problems(store, three):
    assert verify(store) == []
    assert verify(store, "n1") == []


def test_a_flipped_bit_is_found_and_set_aside(store, three, key):
    path = three[1].path / "model.bin"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    assert verify(store, "n0") == []
    assert verify(store) == [f"objects/{three[1].digest[:12]}: model.bin was changed"]
    assert store.lookup(key(config={"n": 1})) is None
    assert digests(store) == {three[0].digest, three[2].digest}
    assert {record.node for record in store.records()} == {"n0", "n2"}
    assert len(list(store.broken.iterdir())) == 2
    assert verify(store) == []


def test_a_changed_record_is_found_and_set_aside(store, three):
    path = store.keys / f"{three[0].key}.json"
    path.write_text(path.read_text().replace('"n": 0', '"n": 7'))
    (store.keys / f"{three[1].key}.json").write_text("{half")
    assert set(verify(store)) == {
        f"keys/{three[1].key}.json: cannot be read",
        f"keys/{three[0].key}.json: was changed",
    }
    assert [record.key for record in store.records()] == [three[2].key]
    assert verify(store) == []


def test_verifying_a_missing_artifact_is_refused(store, three):
    with pytest.raises(StoreError, match="holds no artifact 'n7'"):
        verify(store, "n7")


@pytest.mark.parametrize("kind", ["file", "link", "other name"])
def test_entries_that_are_no_objects_are_found_and_set_aside(store, three, kind):
    place = store.objects / ("0" * 64)
    if kind == "file":
        shutil.rmtree(three[0].path)
        place = three[0].path
        place.write_text("a file in place of a folder")
    elif kind == "link":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
    problem = "manifest.json is missing" if kind == "other name" else "is not a folder"
    assert f"objects/{place.name[:12]}: {problem}" in verify(store)
    assert not os.path.lexists(place)
    assert len(list(store.broken.iterdir())) == (2 if kind == "file" else 1)  # with its key record


@pytest.mark.parametrize(
    ("old", "new"),
    [('"name": "pydocs"', '"name": "pydocz"'), ('"loss": 1.5', '"loss": 1.4'), ("{", "[{"), ("n0", "n1")],
)
def test_a_changed_record_of_a_run_is_found_and_set_aside(store, three, old, new):
    path = record_run(store, "pydocs", {"n0": replace(three[0], metrics={"loss": 1.5})}, {})
    assert verify(store) == []
    path.write_text(path.read_text().replace(old, new, 1))
    why = "cannot be read" if new == "[{" else "was changed"
    assert verify(store) == [f"runs/{path.name}: {why}"]
    assert runs(store) == [] == verify(store)


def test_a_record_of_a_run_of_an_older_version_is_read(store, three):
    path = record_run(store, "pydocs", {"a": three[0]}, {})
    fields = json.loads(path.read_text())
    del fields["sha256"]
    path.write_text(json.dumps(fields))
    assert verify(store) == []
    assert runs(store)[0].nodes == {"a": three[0]}
    path.rename(path.with_name("20010101T000000.000000Z-pydocs.json"))
    assert verify(store) == ["runs/20010101T000000.000000Z-pydocs.json: was changed"]


@pytest.mark.parametrize("days", [1, 400, 36500])
def test_a_run_of_the_future_counts_as_the_oldest_and_is_reported(store, three, days):
    record_run(store, "present", {"a": three[0]}, {})
    path = record_run(store, "future", {"a": three[1]}, {}, datetime.now(UTC) + timedelta(days=days))
    record_run(store, "skewed", {"a": three[2]}, {}, datetime.now(UTC) + timedelta(seconds=30))
    assert [run.name for run in runs(store)] == ["skewed", "present", "future"]
    assert [run.name for run in readable_runs(store)] == ["skewed", "present", "future"]
    [line] = verify(store)
    assert line.startswith(f"runs/{path.name}: dated in the future (")
    gc(store, runs=2, days=3)
    assert digests(store) == {three[0].digest, three[2].digest}


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (lambda right: [*right[:3], "0" * 64], "the digest of {} was changed, and is forgotten"),
        (lambda right: [*right[:3], 7], "the digest of {} was changed, and is forgotten"),
        (lambda right: right, None),
        (lambda right: [right[0] + 1, *right[1:3], "0" * 64], None),  # of another state of the file
    ],
)
def test_the_cache_of_digests_is_verified(store, tmp_path, entry, line):
    source = tmp_path / "corpus.tsv"
    source.write_text("text")
    age(source, 1)
    time.sleep(0.01)
    store.prepare()
    stat = source.stat()
    state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    right = hashlib.sha256(b"text").hexdigest()
    store.sources.write_text(json.dumps({str(source): entry([*state, right])}))
    assert verify(store) == ([f"sources.json: {line.format(source)}"] if line else [])
    assert verify(store) == []
    assert store.source_digests({"corpus": source})["corpus"] == right


@pytest.mark.parametrize("inside", ["", "model.bin", "sub/words.txt", "sub"])
@pytest.mark.parametrize("by", ["its path", "a link", "another store"])
def test_a_source_within_a_damaged_artifact_is_refused(store, three, tmp_path, inside, by):
    shelf, path = store, three[0].path / inside
    if by == "a link":
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    elif by == "another store":
        shelf = Store(tmp_path / "another")
    digests = shelf.source_digests({"checkpoint": path})
    assert digests == shelf.source_digests({"checkpoint": path})
    data = bytearray((three[0].path / "model.bin").read_bytes())
    data[0] ^= 1
    (three[0].path / "model.bin").write_bytes(data)
    node = "checkpoint" if by == "another store" else "n0"
    with pytest.raises(StoreError) as error:
        shelf.source_digests({"checkpoint": path})
    assert str(error.value) == (
        f"{store.root}: {node} (objects/{three[0].digest[:12]}): model.bin was changed; "
        f"`cocondenser artifacts verify --store {store.root}` sets it aside"
    )


@pytest.mark.parametrize("text", ["{half", "[]", "7"])
def test_a_cache_of_digests_that_cannot_be_read_is_forgotten(store, three, text):
    store.sources.write_text(text)
    assert verify(store) == ["sources.json: cannot be read, and is forgotten"]
    assert verify(store) == []


# Runs that have not ended


@pytest.mark.parametrize("used", ["built", "taken"])
def test_gc_keeps_what_an_active_run_has_built_or_used(store, three, key, writes, used):
    with protect_from_gc(store, "tiny"):
        if used == "built":
            ref = store.build(Request(key(stage="ingest"), node="ingest"), writes("new")).ref
        else:
            ref = store.build(Request(key(config={"n": 1}), node="n1"), writes()).ref
        gc(store, runs=0, days=0)
        assert digests(store) == {ref.digest}
        gc(store, runs=0, days=0, dry_run=True)
    assert list(store.locks.glob("run-*")) == []
    gc(store, runs=0, days=0)
    assert digests(store) == set()


@pytest.mark.parametrize("ahead", [-3600, 700, 3600, 100 * 86_400])
def test_gc_keeps_what_a_run_has_built_by_a_file_servers_clock(store, three, key, writes, ahead):
    def by_the_servers_clock(path):
        os.utime(path, (time.time() + ahead,) * 2)

    with protect_from_gc(store, "tiny"):
        [lock] = store.locks.glob("run-*")
        by_the_servers_clock(lock)
        ref = store.build(Request(key(stage="ingest"), node="ingest"), writes("new")).ref
        by_the_servers_clock(store.keys / f"{ref.key}.json")
        gc(store, runs=0, days=0)
        assert ref.digest in digests(store)
    gc(store, runs=0, days=0)
    assert digests(store) == set()


def test_a_killed_run_keeps_nothing(store, three, key, writes, python):
    script = """
        import sys, time
        from pathlib import Path
        from artifacts.live import protect_from_gc
        from artifacts.store import Request, Store
        with protect_from_gc(Store(Path(sys.argv[1])), "tiny"):
            print(flush=True)
            time.sleep(60)
    """
    process = python(script, store.root)
    process.stdout.readline()
    ref = store.build(Request(key(stage="ingest"), node="ingest"), writes("new")).ref
    gc(store, runs=0, days=0)
    assert digests(store) == {ref.digest}
    process.kill()
    process.wait()
    gc(store, runs=0, days=0)
    assert digests(store) == set()
    assert list(store.locks.glob("run-*")) == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_run_that_ends_during_gc_is_no_error(store, three, dry_run, monkeypatch):
    removed = store.locks / "run-1-tiny.lock"
    glob = type(removed).glob
    monkeypatch.setattr(
        type(removed),
        "glob",
        lambda path, *pattern, **options: [removed] if pattern == ("run-*.lock",) else glob(path, *pattern, **options),
    )
    assert removed.name not in [one.path.name for one in gc(store, runs=0, days=0, dry_run=dry_run)]
    assert not removed.exists()


@pytest.mark.parametrize("to", ["nowhere", "a folder", "a file"])
def test_a_link_among_the_objects_is_removed_and_not_followed(store, three, tmp_path, to):
    foreign = tmp_path / "foreign"
    if to == "a folder":
        foreign.mkdir()
        (foreign / "kept").write_text("x" * 5000)
    elif to == "a file":
        foreign.write_text("kept")
    (store.objects / ("0" * 64)).symlink_to(foreign)
    (store.broken / "old").symlink_to(foreign)
    removals = gc(store, runs=0, days=100, dry_run=True)
    assert [one.why for one in removals] == ["no key is left", "broken"]
    assert sum(one.bytes for one in removals) < 5000
    assert gc(store, runs=0, days=100) == removals
    assert not os.path.lexists(store.objects / ("0" * 64))
    assert list(store.broken.iterdir()) == []
    assert foreign.exists() == (to != "nowhere")
    assert to != "a folder" or (foreign / "kept").exists()


def test_a_dry_gc_writes_and_locks_nothing(store, three):
    shutil.rmtree(store.locks)
    shutil.rmtree(store.work)
    shutil.rmtree(store.broken)
    before = {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]}
    assert len(gc(store, runs=0, days=3, dry_run=True)) == 6
    assert {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]} == before


def test_a_dry_gc_knows_what_is_locked(store, three):
    with locks.hold(store.lock_file(three[0].key), locks.holder("train", "stage2", {"start": three[1].identity})):
        removals = gc(store, runs=0, days=0, dry_run=True)
    assert {one.path.name for one in removals} == {f"{three[2].key}.json", three[2].digest}
