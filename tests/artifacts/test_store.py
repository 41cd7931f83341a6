"""Looking up and building, in one process."""

import json
import os
import pickle
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from artifacts import objects
from artifacts.build_clock import Clock
from artifacts.errors import Damaged, StoreError
from artifacts.store import Hooks, Request, Store


def names(store):
    """Relative paths of all files of the store except locks and the cache."""
    paths = (path.relative_to(store.root).as_posix() for path in store.root.rglob("*") if path.is_file())
    return {name for name in paths if not name.startswith("locks/")}


def test_a_folder_of_other_files_is_no_store(tmp_path):
    store = Store(tmp_path / "store")
    assert not store.is_other_folder()
    for name in (".gitignore", "lost+found", "work", "logs"):  # the last two: of a store that is being created
        (store.root / name).mkdir(parents=True)
    assert not store.is_other_folder()
    (store.root / "README.md").write_text("mine")
    assert store.is_other_folder()
    store.prepare()
    assert not store.is_other_folder()


def test_a_built_artifact_is_found(store, key, writes, never):
    assert store.lookup(key()) is None
    built = store.build(Request(key(), node="stage1"), writes("model", loss=0.5))
    assert not built.hit
    assert (built.ref.path / "model.bin").read_text() == "model"
    assert (built.ref.path / "sub/words.txt").read_text() == "modelmodel"
    assert built.ref.metrics == {"loss": 0.5}
    assert built.ref.identity == built.ref.digest == built.ref.path.name
    again = store.build(Request(key(), node="stage1"), never)
    assert again.hit
    assert not again.kept
    assert again.ref == built.ref == store.lookup(key()) == Store(store.root).lookup(key())
    assert pickle.loads(pickle.dumps(built.ref)) == built.ref
    object_files = {f"objects/{built.ref.digest}/{name}" for name in ("model.bin", "sub/words.txt", "manifest.json")}
    assert names(store) == {"format.json", f"keys/{key().hex}.json"} | object_files
    assert list(store.work.iterdir()) == []


def test_the_record_holds_the_lineage(store, key, writes):
    store.build(Request(key(), node="stage1", recipe="pydocs"), writes(loss=1))
    record = store.record(key().hex)
    for part in ("stage", "code", "config", "sources", "inputs", "libraries"):
        assert getattr(record, part) == getattr(key(), part)
    assert (record.node, record.recipe, record.kept_from) == ("stage1", "pydocs", None)
    assert record.bytes == len("model") * 3
    assert {"python", "torch", "prefect"} <= set(record.versions)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(record.created)).total_seconds()) < 60
    assert 0 <= record.seconds < 60


def test_the_record_has_the_number_of_gpus_in_use(store, key, writes, never):
    store.build(Request(key(), node="stage1"), writes(), Hooks(gpus=lambda: 8))
    assert store.record(key().hex).gpus == 8
    store.build(Request(key(), node="stage1"), never, Hooks(gpus=lambda: 1))
    assert store.record(key().hex).gpus == 8


def test_a_record_of_an_older_version_is_read(store, key, writes, never):
    store.build(Request(key(), node="stage1"), writes(), Hooks(gpus=lambda: 8))
    path = store.keys / f"{key().hex}.json"
    older = json.loads(path.read_text())
    for later in ("gpus", "checked", "sha256"):
        del older[later]
    path.write_text(json.dumps(older))
    assert Store(store.root).build(Request(key(), node="stage1"), never).hit
    assert Store(store.root).record(key().hex).gpus is None


def test_a_clock_counts_only_the_work(store, key):
    """By its file times, the first part waited, began to work an hour ago and saved a checkpoint 40 minutes later. The
    second part only waited."""
    saved = store.work / key().hex / "checkpoints" / "step-1"

    def interrupted(out, checkpoints):
        ago = time.time() - 3600
        with clock.at_work(checkpoints.parent):
            os.utime(checkpoints.parent / "seconds", (ago, ago))
            saved.touch()
            os.utime(saved, (ago + 2400, ago + 2400))
        raise InterruptedError

    def waiting(out, checkpoints):
        raise InterruptedError

    def finished(out, checkpoints):
        time.sleep(1.0)
        with clock.at_work(checkpoints.parent):
            (out / "model.bin").write_text("model")
        time.sleep(1.0)
        return {}

    for make in (interrupted, waiting):
        clock = Clock()
        with pytest.raises(InterruptedError):
            store.build(Request(key(), node="stage1"), make, Hooks(clock=clock))
    clock = Clock()
    store.build(Request(key(), node="stage1"), finished, Hooks(clock=clock))
    assert 2400 <= store.record(key().hex).seconds < 2401


def test_an_interrupted_builds_parts_count_up_to_their_last_checkpoint(store, key):
    """By its file times, the first part began an hour ago and saved a checkpoint 40 minutes later. The second part
    saved nothing."""
    saved = store.work / key().hex / "checkpoints" / "step-1"
    clock = store.work / key().hex / "seconds"

    def interrupted(out, checkpoints):
        saved.touch()
        raise InterruptedError

    def finished(out, checkpoints):
        (out / "model.bin").write_text("model")
        return {}

    def set_times(seconds_ago, saved_ago):
        now = time.time()
        os.utime(clock, (now - seconds_ago, now - seconds_ago))
        os.utime(saved, (now - saved_ago, now - saved_ago))

    with pytest.raises(InterruptedError):
        store.build(Request(key(), node="stage1"), interrupted)
    set_times(3600, 1200)
    with pytest.raises(InterruptedError):
        store.build(Request(key(), node="stage1"), interrupted)
    set_times(600, 1200)
    store.build(Request(key(), node="stage1"), finished)
    assert 2400 <= store.record(key().hex).seconds < 2460
    assert not (store.work / key().hex).exists()


def test_equal_content_is_one_object(store, key, writes):
    one = store.build(Request(key(), node="a"), writes("same")).ref
    other = store.build(Request(key(config={"steps": 4}), node="a"), writes("same")).ref
    assert one.digest == other.digest
    assert one.key != other.key
    assert len(list(store.objects.iterdir())) == 1


def test_equal_content_does_not_hide_behind_a_damaged_object(store, key, writes):
    one = store.build(Request(key(), node="a"), writes("same")).ref
    (one.path / "model.bin").write_text("sams")
    other = store.build(Request(key(config={"steps": 4}), node="a"), writes("same")).ref
    assert (other.path / "model.bin").read_text() == "same"
    assert len(list(store.broken.iterdir())) == 1


def test_identity_may_be_the_key(store, key, writes):
    ref = store.build(Request(key(), node="bm25", identity="key"), writes("1")).ref
    assert ref.identity == key().hex != ref.digest
    (ref.path / "model.bin").unlink()
    again = store.build(Request(key(), node="bm25", identity="key"), writes("2")).ref
    assert again.identity == ref.identity
    assert again.digest != ref.digest


def delete(ref):
    (ref.path / "sub/words.txt").unlink()


def truncate(ref):
    os.truncate(ref.path / "model.bin", 2)


def lose(ref):
    ref.path.rename(ref.path.with_name("elsewhere"))


def lose_manifest(ref):
    (ref.path / objects.MANIFEST).unlink()


def forge_manifest(ref):
    path = ref.path / objects.MANIFEST
    path.write_text(path.read_text().replace('"size":5', '"size":6'))


@pytest.mark.parametrize("damage", [delete, truncate, lose, lose_manifest, forge_manifest])
def test_damage_is_noticed_set_aside_and_built_again(store, key, writes, damage):
    ref = store.build(Request(key(), node="a"), writes()).ref
    damage(ref)
    assert store.lookup(key()) is None
    assert list(store.broken.iterdir()) == []
    built = store.build(Request(key(), node="a"), writes())
    assert len(list(store.broken.iterdir())) == (damage is not lose)
    assert not built.hit
    assert built.ref == ref == store.lookup(key())
    assert store.whole(ref.digest) is None


def test_a_flipped_bit_is_noticed_by_a_check(store, key, writes, never):
    ref = store.build(Request(key(), node="a"), writes("model")).ref
    (ref.path / "model.bin").write_text("mudel")
    assert store.build(Request(key(), node="a"), never).hit
    assert store.whole(ref.digest) == "model.bin was changed"
    with pytest.raises(Damaged):
        store.check([ref])
    assert not store.build(Request(key(), node="a"), writes("model")).hit
    assert (ref.path / "model.bin").read_text() == "model"


def test_a_record_that_cannot_be_read_counts_as_missing(store, key, writes):
    ref = store.build(Request(key(), node="a"), writes()).ref
    path = store.keys / f"{key().hex}.json"
    text = path.read_text()
    for damaged in (text[:50], text.replace(ref.digest, ""), text.replace(ref.digest, "../" * 21 + "x"), "[]"):
        path.write_text(damaged)
        assert store.lookup(key()) is None
    assert store.objects.is_dir()
    assert store.build(Request(key(), node="a"), writes()).ref == ref


def test_an_exception_keeps_only_checkpoints(store, key, writes):
    def fail(out, checkpoints):
        (out / "half").write_text("x")
        (checkpoints / "step-1").write_text("1")
        raise RuntimeError("no")

    def resume(out, checkpoints):
        assert list(out.iterdir()) == []
        assert (checkpoints / "step-1").read_text() == "1"
        return writes()(out, checkpoints)

    with pytest.raises(RuntimeError, match="no"):
        store.build(Request(key(), node="a"), fail)
    assert names(store) == {"format.json"} | {
        f"work/{key().hex}/{name}" for name in ("begun", "seconds", "checkpoints/step-1")
    }
    assert store.build(Request(key(), node="a"), resume).ref
    assert list(store.work.iterdir()) == []


def test_an_exception_before_the_first_checkpoint_leaves_nothing(store, key):
    def fail(out, checkpoints):
        (out / "half").write_text("x")
        raise ValueError("line 3 is wrong")

    with pytest.raises(ValueError, match="line 3"):
        store.build(Request(key(), node="a"), fail)
    assert list(store.work.iterdir()) == []


def test_refresh_builds_once(store, key, writes, never):
    store.build(Request(key(), node="a"), writes("old"))
    requested = datetime.now(UTC)
    fresh = store.build(Request(key(), node="a", refresh_since=requested), writes("new"))
    assert not fresh.hit
    assert (store.lookup(key()).path / "model.bin").read_text() == "new"
    assert store.build(Request(key(), node="a", refresh_since=requested), never).hit


def test_refresh_forgets_older_checkpoints_but_not_its_own(store, key, writes):
    def fail(out, checkpoints):
        (checkpoints / f"step-{len(list(checkpoints.iterdir()))}").touch()
        raise RuntimeError(str(sorted(path.name for path in checkpoints.iterdir())))

    with pytest.raises(RuntimeError):
        store.build(Request(key(), node="a"), fail)
    time.sleep(0.05)
    requested = datetime.now(UTC)
    time.sleep(0.05)
    with pytest.raises(RuntimeError, match=r"\['step-0'\]"):
        store.build(Request(key(), node="a", refresh_since=requested), fail)
    with pytest.raises(RuntimeError, match=r"\['step-0', 'step-1'\]"):
        store.build(Request(key(), node="a", refresh_since=requested), fail)


def test_refresh_of_a_retried_flow_in_another_time_zone_builds_nothing(store, key, writes, never):
    store.build(Request(key(), node="a"), writes())
    ago = (datetime.now(UTC) - timedelta(minutes=1)).astimezone()
    assert store.build(Request(key(), node="a", refresh_since=ago), never).hit


def test_keep_accepts_only_older_code(store, key, writes, never):
    old = store.build(Request(key(), node="a"), writes("old")).ref
    newer = key(code={"pipeline/train.py": "c1"})
    built = store.build(Request(newer, node="a", keep=True), never)
    assert built.hit
    assert built.kept
    assert built.ref.digest == old.digest
    assert built.ref.key == newer.hex
    assert store.record(newer.hex).kept_from == old.key
    assert store.record(newer.hex).code == newer.code
    assert store.lookup(newer) == built.ref
    for also in ({"config": {"steps": 9}}, {"libraries": {"tokenizers": "0.23"}}):
        other = key(code={"pipeline/train.py": "c1"}, **also)
        assert not store.build(Request(other, node="a", keep=True), writes()).hit


def test_keep_takes_the_newest_that_is_whole(store, key, writes, never):
    store.build(Request(key(code={"a": "1"}), node="a"), writes("1"))
    second = store.build(Request(key(code={"a": "2"}), node="a"), writes("2")).ref
    third = store.build(Request(key(code={"a": "3"}), node="a"), writes("3")).ref
    (third.path / "model.bin").unlink()
    assert store.build(Request(key(code={"a": "4"}), node="a", keep=True), never).ref.digest == second.digest


def test_metrics_are_saved_as_plain_json(store, key, writes):
    odd = {"loss": np.float32(0.5), "steps": np.int64(3), "bad": float("nan"), "far": np.inf}
    metrics = store.build(Request(key(), node="a"), writes(**odd, name="x", none=None)).ref.metrics
    assert metrics == {"loss": 0.5, "steps": 3, "bad": None, "far": None, "name": "x", "none": None}
    assert store.lookup(key()).metrics == metrics


def test_modes_follow_the_umask(tmp_path, key):
    def secretive(out, checkpoints):
        (out / "sub").mkdir(mode=0o700)
        (out / "sub/private").touch(mode=0o600)
        return {}

    before = os.umask(0o002)
    try:
        store = Store(tmp_path / "shared")
        ref = store.build(Request(key(), node="a"), secretive).ref
    finally:
        os.umask(before)
    paths = [path for path in store.root.rglob("*") if path.parent != store.locks]
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o664}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o775}
    assert ref.path.stat().st_mode & 0o777 == 0o775


@pytest.mark.parametrize("kind", ["link", "manifest", "nothing", "pipe"])
def test_invalid_artifacts_are_refused(store, key, kind):
    def make(out, checkpoints):
        if kind == "link":
            (out / "link").symlink_to("/etc/hostname")
        if kind == "pipe":
            os.mkfifo(out / "pipe")
        if kind == "manifest":
            (out / "manifest.json").write_text("{}")
        return {}

    with pytest.raises(ValueError, match=r"plain files|the store|no file"):
        store.build(Request(key(), node="a"), make)
    assert store.lookup(key()) is None
    assert list(store.objects.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"format": 2}', r"format\.json: format 2 is newer than 1"),
        ("{}", r"format\.json: not the format file of a store"),
        ("half", r"format\.json: not the format file of a store"),
    ],
)
def test_another_format_is_refused(tmp_path, text, line):
    (tmp_path / "format.json").write_text(text)
    with pytest.raises(StoreError, match=line):
        Store(tmp_path)


def test_a_file_is_no_store(tmp_path, key, never):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file: not a folder"):
        Store(tmp_path / "file")


def test_reading_creates_no_folder(store, key):
    assert store.lookup(key()) is None
    assert store.records() == []
    with pytest.raises(StoreError, match=r"holds no artifact 'x'"):
        store.show("x")
    assert not store.root.exists()


def test_artifacts_are_shown_by_stage_node_digest_or_key(store, key, writes):
    first = store.build(Request(key(), node="encode-1"), writes("1")).ref
    second = store.build(Request(key(config={}), node="encode-2"), writes("2")).ref
    assert store.show("train").key == second.key
    assert store.show("encode-1").key == first.key
    assert store.show(first.digest[:10]).key == first.key
    assert store.show(second.key[:10]).digest == second.digest
    assert [record.node for record in store.records()] == ["encode-2", "encode-1"]
    assert store.records("other") == []
    assert store.ref(store.show("encode-1")) == first


def test_a_prefix_of_two_artifacts_is_refused(store, key, writes):
    # One more than there are hexadecimal digits.
    digests = [store.build(Request(key(config={"n": n}), node="a"), writes(str(n))).ref.digest for n in range(17)]
    ((shared, count),) = Counter(digest[0] for digest in digests).most_common(1)
    assert count > 1
    with pytest.raises(StoreError, match=rf"\d+ artifacts begin with '{shared}'"):
        store.show(shared)


def test_a_moved_store_is_complete(store, key, writes, tmp_path):
    digest = store.build(Request(key(), node="a"), writes()).ref.digest
    store.root.rename(tmp_path / "moved")
    ref = Store(tmp_path / "moved").lookup(key())
    assert ref.path == tmp_path / "moved/objects" / digest


def test_a_hit_takes_milliseconds_for_any_size(store, key):
    def make(out, checkpoints):
        for number in range(100):
            with (out / f"shard-{number:05}.npy").open("wb") as file:
                file.truncate(100_000 if number else 200_000_000)
        return {}

    store.build(Request(key(), node="a"), make)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        assert Store(store.root).lookup(key()) is not None
        times.append(time.perf_counter() - started)
    assert min(times) < 0.05


def test_the_record_on_disk_is_plain_json(store, key, writes):
    store.build(Request(key(), node="a"), writes())
    record = json.loads((store.keys / f"{key().hex}.json").read_text())
    assert record["key"] == key().hex
    assert record["inputs"] == {"tokens": "i0"}
