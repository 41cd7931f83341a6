"""Disks that are full, limited or read-only."""

import errno
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from artifacts import files
from artifacts.errors import StoreError
from artifacts.gc import gc
from artifacts.runs import record_run
from artifacts.store import Request, Store
from artifacts.verify import verify

FULL = r"store: no space left \(\d+\.\d\d GiB free\)$"


def to_full_device(out, checkpoints):
    (checkpoints / "step-1").touch()
    (out / "model.bin").write_text("model")
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)


def to_full_device_wrapped(out, checkpoints):
    try:
        to_full_device(out, checkpoints)
    except OSError as error:
        raise RuntimeError("training failed") from error


def as_a_childs_message(out, checkpoints):
    (checkpoints / "step-1").touch()
    raise RuntimeError("child ended: safetensors: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("make", [to_full_device, to_full_device_wrapped, as_a_childs_message])
def test_a_disk_that_fills_while_a_stage_works_is_reported(store, key, writes, make):
    with pytest.raises(StoreError, match=FULL):
        store.build(Request(key(), node="a"), make)
    assert list(store.objects.iterdir()) == []
    assert [path.name for path in (store.work / key().hex).iterdir() if path.name == "out"] == []
    assert (store.work / key().hex / "checkpoints/step-1").exists()
    assert not store.build(Request(key(), node="a"), writes()).hit


@pytest.mark.parametrize(
    "error", [OSError("2000 requested and 783 written"), RuntimeError("unexpected pos 576 vs 534")]
)
def test_other_write_errors_on_a_full_disk_are_reported_as_a_full_disk(store, key, monkeypatch, error):
    """The errors of NumPy and of torch.save."""

    def fail(out, checkpoints):
        raise error

    with pytest.raises(type(error), match=str(error)):
        store.build(Request(key(), node="a"), fail)
    usage = shutil.disk_usage(store.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=4096))
    with pytest.raises(StoreError, match=FULL):
        store.build(Request(key(), node="a"), fail)


@pytest.mark.parametrize("call", range(3))
def test_a_disk_that_fills_while_the_store_files_an_artifact_is_reported(store, key, writes, monkeypatch, call):
    """`call`: the manifest, the folder's names, the record."""
    store.prepare()
    names = ["write_file", "sync", "write_file"]
    whole = getattr(files, names[call])
    left = [1 if call == 2 else 0]

    def full(path, *data):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(path, *data)

    monkeypatch.setattr(files, names[call], full)
    with pytest.raises(StoreError, match=FULL):
        store.build(Request(key(), node="a"), writes())
    monkeypatch.undo()
    assert list(store.keys.iterdir()) == []
    assert store.lookup(key()) is None
    assert not store.build(Request(key(), node="a"), writes()).hit
    assert store.whole(store.lookup(key()).digest) is None


def test_a_limit_on_the_size_of_files_is_reported(store, key):
    def limited(out, checkpoints):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        try:
            (out / "model.bin").write_bytes(b"x" * 100_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        return {}

    with pytest.raises(StoreError, match=r"store: file size limit reached \("):
        store.build(Request(key(), node="a"), limited)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    files.write_file(tmp_path / "it.json", b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_file(tmp_path / "it.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["it.json"]
    assert (tmp_path / "it.json").read_bytes() == b"old"


def test_other_exceptions_are_raised_unchanged(store, key):
    def fail(out, checkpoints):
        raise FileNotFoundError(errno.ENOENT, "gone", "corpus.tsv")

    with pytest.raises(FileNotFoundError, match=r"corpus\.tsv"):
        store.build(Request(key(), node="a"), fail)


@pytest.fixture
def closed():
    """A store that this process may only read after `close` is called."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        euid = os.geteuid()

        def close():
            if euid == 0:
                os.seteuid(65534)
            for path in [] if euid == 0 else root.rglob("*"):
                path.chmod(path.stat().st_mode & ~0o222)

        yield Store(root / "store"), close
        os.seteuid(euid)
        for path in [path for path in root.rglob("*") if path.is_dir()]:
            path.chmod(0o755)


def test_a_read_only_store_gives_hits_and_builds_nothing(closed, key, writes, never):
    """Another user's store gives hits; a build is refused in one line."""
    store, close = closed
    store.build(Request(key(), node="a"), writes())
    close()
    assert store.build(Request(key(), node="a"), never).hit
    assert len(store.source_digests({"it": Path(__file__)})["it"]) == 64
    with pytest.raises(StoreError, match=r"store/locks/\w+\.lock: permission denied$"):
        store.build(Request(key(stage="other"), node="a"), never)


def test_nothing_is_removed_from_a_read_only_store(closed, key, writes):
    store, close = closed
    store.build(Request(key(), node="a"), writes())
    close()
    with pytest.raises(StoreError, match=r"store/locks/commit\.lock: permission denied$"):
        gc(store, 0, 0)


def test_damage_in_a_read_only_store_is_reported_each_time(closed, key, writes):
    """It cannot be set aside, so it is found again."""
    store, close = closed
    one, two, three = (store.build(Request(key(config={"n": n}), node="a"), writes(f"model {n}")).ref for n in range(3))
    run = record_run(store, "tiny", {"a": one}, {})
    run.write_text("{half")
    (store.keys / f"{one.key}.json").write_text("{half")
    for ref, text in ((two, "mudel 1"), (three, "model")):
        (ref.path / "model.bin").write_text(text)
    close()
    refused = r"; it cannot be set aside: permission denied"
    for _ in range(2):
        assert set(verify(store)) == {
            f"keys/{one.key}.json: cannot be read{refused}",
            f"objects/{two.digest[:12]}: model.bin was changed{refused}",
            f"objects/{three.digest[:12]}: model.bin has 5 bytes, not 7{refused}",
            f"runs/{run.name}: cannot be read{refused}",
        }


def test_a_dry_gc_works_in_a_read_only_store(closed, key, writes):
    store, close = closed
    ref = store.build(Request(key(), node="a"), writes()).ref
    close()
    assert [one.path.name for one in gc(store, 0, 0, dry_run=True)] == [f"{ref.key}.json", ref.digest]


def test_a_store_that_cannot_be_created_is_reported(closed, key, never):
    store, close = closed
    store.root.parent.chmod(0o555)
    close()
    with pytest.raises(StoreError, match=r"store/?\w*: permission denied$"):
        store.build(Request(key(), node="a"), never)
