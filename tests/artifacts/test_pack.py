"""Runs as files: into another store and back, and what is refused before a store sees it."""

import hashlib
import io
import json
import os
import signal
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from artifacts import archive
from artifacts.errors import StoreError
from artifacts.gc import gc
from artifacts.keys import canonical
from artifacts.pack import pack
from artifacts.records import Ref
from artifacts.runs import Run, record_run, runs
from artifacts.store import Store
from artifacts.unpack import unpack
from artifacts.verify import verify

LONG = "a-name-of-more-letters-than-a-tar-header-has-room-for" * 3


@pytest.fixture
def run(store: Store, key: Callable[..., Any], writes: Callable[..., Any]) -> Run:
    """tokens -> bm25 (whose bytes vary) and stage1; the newest run of the store."""

    def long_named(out: Path, checkpoints: Path) -> dict[str, Any]:
        (out / LONG).write_bytes(b"")
        (out / "model.bin").write_bytes(bytes(range(256)) * 9000)
        return {"loss": 0.5, "none": None}

    tokens = store.build(key(stage="tokens", inputs={}), writes("tokens", words=3), node="tokens").ref
    bm25 = built_bm25(store, key, writes, tokens)
    stage1 = store.build(
        key(stage="finetune", inputs={"tokens": tokens.identity, "bm25": bm25.identity}), long_named, node="stage1"
    ).ref
    nodes = {"tokens": tokens, "bm25": bm25, "stage1": stage1}
    record_run(store, "tiny", nodes, {"recipe": {"name": "tiny"}, "set": []}, datetime(2026, 11, 22, tzinfo=UTC))
    return runs(store)[0]


def built_bm25(store: Store, key: Any, writes: Any, tokens: Ref, text: str = "lucene") -> Ref:
    return store.build(
        key(stage="bm25", inputs={"tokens": tokens.identity}), writes(text), node="bm25", identity="key"
    ).ref


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "other")


def everything(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_there_and_a_hit_at_every_node(store, other, run, key, never, tmp_path):
    seen: list[tuple[int, int]] = []
    packed = pack(store, run, tmp_path / "run.tar.zst", report=lambda done, total: seen.append((done, total)))
    assert (packed.artifacts, packed.left_out, packed.packed) == (3, [], (tmp_path / "run.tar.zst").stat().st_size)
    assert seen[-1] == (packed.bytes, packed.bytes)
    done = unpack(other, tmp_path / "run.tar.zst")
    assert (done.recipe, done.artifacts, done.new, done.kept) == ("tiny", 3, 3, [])
    for node, ref in run.nodes.items():
        record = store.record(ref.key)
        assert other.record(ref.key) == record
        assert other.build(replace(key(), hex=ref.key), never, node=node).hit
        assert everything(other.objects / ref.digest) == everything(ref.path)
    (there,) = runs(other)
    assert (there.name, there.created, there.details) == (run.name, run.created, run.details)
    assert {node: (ref.key, ref.digest) for node, ref in there.nodes.items()} == {
        node: (ref.key, ref.digest) for node, ref in run.nodes.items()
    }
    assert verify(other) == []
    assert list(other.work.iterdir()) == []
    assert not [path for path in other.locks.iterdir() if path.name.startswith("import")]
    again = unpack(other, tmp_path / "run.tar.zst")
    assert (again.new, len(runs(other))) == (0, 1)


def test_equal_runs_give_equal_bytes_and_tar_reads_them(store, run, tmp_path):
    for name in ("a.tar.zst", "b.tar.zst"):
        pack(store, run, tmp_path / name)
    assert (tmp_path / "a.tar.zst").read_bytes() == (tmp_path / "b.tar.zst").read_bytes()
    with (
        pa.CompressedInputStream(str(tmp_path / "a.tar.zst"), "zstd") as stream,
        tarfile.open(mode="r|", fileobj=stream) as tar,
    ):
        names = [(member.name, member.mtime, member.uid) for member in tar]
    assert names[0] == ("pack.json", 0, 0)
    assert (f"objects/{run.nodes['stage1'].digest}/{LONG}", 0, 0) in names
    assert not [path for path in store.locks.iterdir() if path.name.startswith("export")]


def test_a_file_that_is_there_is_kept(store, run, tmp_path):
    path = tmp_path / "run.tar.zst"
    path.write_text("mine")
    with pytest.raises(StoreError, match=r"run\.tar\.zst: is there already; --overwrite"):
        pack(store, run, path)
    assert path.read_text() == "mine"
    pack(store, run, path, overwrite=True)
    assert path.stat().st_size > 1000
    with pytest.raises(StoreError, match="no such folder"):
        pack(store, run, tmp_path / "nowhere" / "run.tar.zst")


def test_what_can_be_no_pack_is_told_before_the_work(store, run, tmp_path, monkeypatch):
    monkeypatch.setattr("artifacts.pack.lineage", None)
    (tmp_path / "folder.tar.zst").mkdir()
    for name in ("run.tar.gz", "run.zst", "run"):
        with pytest.raises(StoreError, match=rf"/{name}: a pack is a tar by zstd: its name must end in \.tar\.zst$"):
            pack(store, run, tmp_path / name, overwrite=True)
    for folder in (tmp_path, tmp_path / "folder.tar.zst"):
        with pytest.raises(StoreError, match=rf"{folder}: is a folder$"):
            pack(store, run, folder, overwrite=True)


def test_a_run_that_is_not_whole_is_not_written(store, run, key, writes, tmp_path):
    path = tmp_path / "run.tar.zst"
    model = run.nodes["stage1"].path / "model.bin"
    good = model.read_bytes()
    model.write_bytes(b"x" + good[1:])
    with pytest.raises(StoreError, match=r"model\.bin: was changed"):
        pack(store, run, path)
    model.unlink()
    with pytest.raises(StoreError, match=r"stage1: objects/.*: model\.bin is missing; `cocondenser run tiny`"):
        pack(store, run, path)
    model.write_bytes(good)
    record = store.keys / f"{run.nodes['stage1'].key}.json"
    kept = record.read_bytes()
    record.write_bytes(kept.replace(run.nodes["stage1"].digest.encode(), run.nodes["tokens"].digest.encode()))
    with pytest.raises(StoreError, match="stage1 was built anew since"):
        pack(store, run, path)
    record.unlink()
    with pytest.raises(StoreError, match="has lost the record of stage1"):
        pack(store, run, path)
    assert not [name for name in os.listdir(tmp_path) if "run.tar" in name]


def test_a_disk_that_fills_up_leaves_no_file(store, run, tmp_path, monkeypatch):
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("artifacts.archive.write", full)
    with pytest.raises(StoreError, match="no space left"):
        pack(store, run, tmp_path / "run.tar.zst")
    assert os.listdir(tmp_path) == ["store"]


def test_a_lean_pack_holds_the_lineage_and_gives_the_other_hits(store, other, run, tmp_path):
    with pytest.raises(StoreError, match="--without encode: the run of tiny has bm25, finetune, stage1, tokens"):
        pack(store, run, tmp_path / "lean.tar.zst", without=["encode"])
    (run.nodes["bm25"].path / "model.bin").unlink()  # what is left out need not be there
    packed = pack(store, run, tmp_path / "lean.tar.zst", without=["bm25"])
    assert (packed.artifacts, packed.left_out) == (2, ["bm25"])
    done = unpack(other, tmp_path / "lean.tar.zst")
    assert (done.artifacts, done.left_out) == (2, ["bm25"])
    assert [other.problem(other.record(run.nodes[node].key)) for node in ("tokens", "stage1")] == [None, None]
    assert other.record(run.nodes["bm25"].key) is None
    assert verify(other) == []
    assert not runs(other)[0].nodes["bm25"].path.exists()


def test_what_a_run_reads_beyond_its_own_nodes_goes_along(store, other, run, tmp_path):
    record_run(store, "only", {"stage1": run.nodes["stage1"]}, {"ablation": {}})
    only = runs(store, "only")[0]
    assert pack(store, only, tmp_path / "only.tar.zst").artifacts == 3
    assert unpack(other, tmp_path / "only.tar.zst").new == 3
    assert other.record(run.nodes["tokens"].key)


def test_gc_leaves_what_is_being_written(store, run, tmp_path):
    removed = []
    (store.runs / next(iter(os.listdir(store.runs)))).unlink()

    def report(done: int, total: int) -> None:
        if not removed:
            removed.append(gc(store, runs=0, days=0, dry_run=True))

    pack(store, run, tmp_path / "run.tar.zst", report=report)
    assert removed == [[]]
    assert len(gc(store, runs=0, days=0, dry_run=True)) == 6


def test_another_artifact_for_a_key_is_told_and_only_replaced_when_asked(store, other, run, key, writes, tmp_path):
    pack(store, run, tmp_path / "run.tar.zst")
    tokens = other.build(key(stage="tokens", inputs={}), writes("other tokens"), node="tokens").ref
    before = everything(other.root)
    with pytest.raises(StoreError, match=r"holds another artifact of tokens .*; --replace takes the pack's"):
        unpack(other, tmp_path / "run.tar.zst")
    assert everything(other.root) == before
    done = unpack(other, tmp_path / "run.tar.zst", replace=True)
    assert (done.new, done.kept) == (2, [])
    assert other.record(tokens.key).digest == run.nodes["tokens"].digest
    assert tokens.path.exists()  # until gc


def test_where_bytes_cannot_be_equal_the_stores_own_stands(store, other, run, key, writes, tmp_path):
    pack(store, run, tmp_path / "run.tar.zst")
    own = built_bm25(other, key, writes, run.nodes["tokens"], "lucene again")
    assert own.key == run.nodes["bm25"].key
    done = unpack(other, tmp_path / "run.tar.zst")
    assert (done.new, done.kept) == (2, ["bm25"])
    assert runs(other)[0].nodes["bm25"] == own
    assert verify(other) == []


def test_a_broken_artifact_is_mended_and_a_whole_one_keeps_its_record(store, other, run, tmp_path):
    pack(store, run, tmp_path / "run.tar.zst")
    unpack(other, tmp_path / "run.tar.zst")
    stage1, tokens = (other.record(run.nodes[node].key) for node in ("stage1", "tokens"))
    (other.objects / stage1.digest / "model.bin").write_bytes(b"y" * 9000 * 256)  # of the right size
    with other.commit_lock():
        other.write(replace(tokens, host="here"))
    unpack(other, tmp_path / "run.tar.zst")
    assert verify(other) == []
    assert other.record(tokens.key).host == "here"


def members(path: Path) -> list[tuple[str, bytes]]:
    with pa.CompressedInputStream(str(path), "zstd") as stream, tarfile.open(mode="r|", fileobj=stream) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]


def write_members(path: Path, given: list[tuple[str, bytes]], change: Callable[[tarfile.TarInfo], None] | None = None):
    with pa.CompressedOutputStream(str(path), "zstd") as packed:
        tar = tarfile.open(mode="w|", fileobj=packed, format=tarfile.GNU_FORMAT)  # noqa: SIM115
        for name, data in given:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if change:
                change(info)
            tar.addfile(info, io.BytesIO(data))
        tar.close()


def indexed(given: list[tuple[str, bytes]], **changed: Any) -> list[tuple[str, bytes]]:
    """With an index that tells of them as they are now."""
    index = json.loads(given[0][1])
    index["members"] = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in given[1:]]
    return [("pack.json", canonical(index | changed)), *given[1:]]


@pytest.fixture
def refused(store: Store, run: Run, tmp_path: Path) -> Callable[..., str]:
    """Imports a file, as `make(good pack, path)` writes it, into a store that must not change; gives the line."""
    good = tmp_path / "good.tar.zst"
    pack(store, run, good)
    target = Store(tmp_path / "target")
    target.prepare()
    (target.runs / "mine.json").write_text("{}")
    before = everything(target.root)

    def imported(make: Callable[[Path, Path], None]) -> str:
        make(good, tmp_path / "bad.tar.zst")
        with pytest.raises(StoreError) as told:
            unpack(target, tmp_path / "bad.tar.zst")
        assert everything(target.root) == before
        assert list(target.work.iterdir()) == []
        assert "\n" not in str(told.value)
        return str(told.value)

    return imported


def test_a_pack_cut_short_is_refused(refused):
    size = None
    for share in (0, 0.001, 0.1, 0.5, 0.9, 0.999):

        def cut(good: Path, bad: Path, share: float = share) -> None:
            nonlocal size
            size = good.stat().st_size
            bad.write_bytes(good.read_bytes()[: int(size * share)])

        assert "bad.tar.zst: " in refused(cut)


def test_a_flipped_bit_is_refused_wherever_it_is(refused):
    for place in range(17):

        def flip(good: Path, bad: Path, place: int = place) -> None:
            data = bytearray(good.read_bytes())
            data[len(data) * place // 17] ^= 1 << (place % 8)
            bad.write_bytes(data)

        assert "bad.tar.zst: " in refused(flip)


def test_what_is_no_pack_is_refused(refused, tmp_path):
    assert "cannot be unpacked" in refused(lambda good, bad: bad.write_bytes(b"hello " * 999))

    def no_tar(good: Path, bad: Path) -> None:
        with pa.CompressedOutputStream(str(bad), "zstd") as packed:
            packed.write(b"hello " * 999)

    assert "not a tar archive" in refused(no_tar)
    assert "no pack of a run: it begins with x" in refused(lambda good, bad: write_members(bad, [("x", b"y")]))
    assert "format 2; this version reads 1" in refused(
        lambda good, bad: write_members(bad, indexed(members(good), format=2))
    )
    with pytest.raises(StoreError, match=r"nosuch: no such file"):
        unpack(Store(tmp_path / "new"), tmp_path / "nosuch")
    with pytest.raises(StoreError, match="is a directory"):
        unpack(Store(tmp_path / "new"), tmp_path)
    assert not (tmp_path / "new").exists()


def test_a_refused_pack_leaves_no_store_where_there_was_none(store, run, tmp_path):
    good, bad = tmp_path / "good.tar.zst", tmp_path / "bad.tar.zst"
    pack(store, run, good)
    first = next(name for name, _ in members(good) if name.startswith("keys/"))
    write_members(bad, [(name, b"x" * len(data) if name == first else data) for name, data in members(good)])
    (tmp_path / "mine").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for root in (tmp_path / "new", tmp_path / "deep" / "er", tmp_path / "mine"):
        with pytest.raises(StoreError, match=f"{first} was changed"):
            unpack(Store(root), bad)
        assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"/link: file exists$"):
        unpack(Store(tmp_path / "link"), good)


@pytest.mark.parametrize(
    "name",
    ["objects/{0}/../../../escaped", "/escaped", "objects/../escaped", "runs/../x.json", "broken/x", "keys/x.json"],
)
def test_names_that_lead_elsewhere_are_refused(refused, name):
    name = name.format("a" * 64)
    line = refused(lambda good, bad: write_members(bad, indexed([*members(good), (name, b"x")])))
    assert line.endswith(f"pack.json names {name}, which has no place in a store")
    # Nor when the index does not tell.
    line = refused(lambda good, bad: write_members(bad, [*members(good)[:3], (name, b"x")]))
    assert f"holds {name} of 1 bytes where its index has" in line


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(refused, kind):
    def change(info: tarfile.TarInfo) -> None:
        if info.name.startswith("objects/"):
            info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    assert "is no plain file" in refused(lambda good, bad: write_members(bad, members(good), change))


def test_more_or_less_than_the_index_says_is_refused(refused):
    assert "holds more than its index says" in refused(
        lambda good, bad: write_members(bad, [*members(good), ("objects/x/y", b"z")])
    )
    assert "holds nothing of 0 bytes where" in refused(lambda good, bad: write_members(bad, members(good)[:-1]))

    def bomb(good: Path, bad: Path) -> None:
        given = members(good)
        write_members(bad, [*given[:-1], (given[-1][0], bytes(1 << 24))])

    assert "of 16,777,216 bytes where its index has" in refused(bomb)

    def after_its_end(good: Path, bad: Path) -> None:
        with pa.CompressedInputStream(str(good), "zstd") as stream, pa.CompressedOutputStream(str(bad), "zstd") as out:
            out.write(stream.read() + bytes(1 << 20))

    assert "more follows its end" in refused(after_its_end)

    def huge(good: Path, bad: Path) -> None:
        given = members(good)
        index = json.loads(given[0][1])
        index["members"][-1][1] = 1 << 60
        write_members(bad, [("pack.json", canonical(index)), *given[1:]])

    assert "GiB are free" in refused(huge)


def test_members_that_disagree_are_refused(refused, run):
    def with_member(start: str, change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
        def make(good: Path, bad: Path) -> None:
            given = members(good)
            at = next(i for i, (name, _) in enumerate(given) if name.startswith(start))
            given[at] = given[at][0], change(given[at][1])
            write_members(bad, indexed(given))

        return make

    stage1, bm25 = run.nodes["stage1"], run.nodes["bm25"]
    record, objects = f"keys/{stage1.key}", f"objects/{stage1.digest}"
    assert "is not of what it says" in refused(with_member(record, lambda d: d.replace(b'"steps": 3', b'"steps": 4')))
    assert "is no record" in refused(with_member(record, lambda d: d.replace(b'"seconds": ', b'"seconds": "x", "s": ')))
    assert "is no record" in refused(with_member(record, lambda d: b"[" * 100_000))
    other = hashlib.sha256(b"other").hexdigest().encode()
    changed = with_member(record, lambda d: d.replace(stage1.digest.encode(), other))
    assert "runs/" in refused(changed)
    model = f"{objects}/model.bin"
    assert "model.bin has 2304001 bytes, not 2304000" in refused(with_member(model, lambda d: d + b"x"))
    assert "not those of its manifest.json" in refused(with_member(model, lambda d: b"x" + d[1:]))
    assert "manifest.json was changed" in refused(
        with_member(f"{objects}/manifest", lambda d: d.replace(b"m", b"n", 1))
    )
    outside = with_member("runs/", lambda d: d.replace(bm25.digest.encode(), b"../../../../etc"))
    assert "has an artifact of bm25 that the pack's records do not have" in refused(outside)
    assert "is no record of a run of that name" in refused(with_member("runs/", lambda d: d.replace(b"tiny", b"tony")))
    assert "is no record of a run" in refused(with_member("runs/", lambda d: b"null"))
    lost = f"objects/{bm25.digest}"
    assert "is missing" in refused(
        lambda good, bad: write_members(bad, indexed([m for m in members(good) if not m[0].startswith(lost)]))
    )
    twice = lambda good, bad: write_members(bad, indexed([*members(good), members(good)[-1]]))  # noqa: E731
    assert "names a file twice" in refused(twice)
    assert "leaves out what is not in the run" in refused(
        lambda good, bad: write_members(bad, indexed(members(good), without=["0" * 64]))
    )


def test_killed_on_the_way_the_store_is_as_before_and_the_same_import_goes_on(
    store, other, run, python, until, tmp_path
):
    pack(store, run, tmp_path / "run.tar.zst")
    other.prepare()
    script = """
        import sys, time
        from pathlib import Path
        from artifacts.store import Store
        from artifacts.unpack import unpack
        unpack(Store(Path(sys.argv[1])), Path(sys.argv[2]), report=lambda done, total: time.sleep(done > 1_000_000))
    """
    process = python(script, other.root, tmp_path / "run.tar.zst")
    until(lambda: any(other.work.glob("import-*/objects/*/model.bin")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not [*other.objects.iterdir(), *other.keys.iterdir(), *other.runs.iterdir()]
    assert gc(other, runs=0, days=1) == []
    assert [item.why for item in gc(other, runs=0, days=0, dry_run=True)] == ["left by a build that did not end"]
    assert unpack(other, tmp_path / "run.tar.zst").new == 3
    assert list(other.work.iterdir()) == []


def test_cut_off_between_two_artifacts_what_is_there_is_whole(store, other, run, tmp_path, monkeypatch):
    pack(store, run, tmp_path / "run.tar.zst")
    file, filed = Store.file, []

    def stop_at_the_third(self: Store, out: Path, record: Any) -> Ref:
        if len(filed) == 2:
            raise KeyboardInterrupt
        filed.append(record)
        return file(self, out, record)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "file", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            unpack(other, tmp_path / "run.tar.zst")
    assert verify(other) == []
    assert (len(other.records()), runs(other), list(other.work.iterdir())) == (2, [], [])
    assert unpack(other, tmp_path / "run.tar.zst").new == 1


def test_two_imports_at_once(store, other, run, tmp_path):
    pack(store, run, tmp_path / "whole.tar.zst")
    pack(store, run, tmp_path / "lean.tar.zst", without=["bm25"])
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            unpack(Store(other.root), tmp_path / name)
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(name,)) for name in ("whole.tar.zst", "lean.tar.zst", "whole.tar.zst")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert verify(other) == []
    assert len(other.records()) == 3
    assert list(other.work.iterdir()) == []


def test_sizes_beyond_what_tars_first_form_holds(tmp_path):
    """8 GiB and more: the header's other way to write numbers, read without the content."""
    info = tarfile.TarInfo("objects/x/index")
    info.size = 27 << 30
    header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")
    with pa.CompressedOutputStream(str(tmp_path / "big"), "zstd") as packed:
        packed.write(header)
    with archive.opened(tmp_path / "big") as reader:
        assert reader.header() == ("objects/x/index", 27 << 30)
