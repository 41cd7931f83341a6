"""Runs as files: exported, and imported into another store."""

import os
import tarfile
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from packs import LONG, built_bm25, everything, rewritten

from artifacts.errors import StoreError
from artifacts.gc import gc
from artifacts.packs.pack import pack
from artifacts.packs.unpack import unpack
from artifacts.runs import record_run, runs
from artifacts.store import Request
from artifacts.verify import verify


def test_an_imported_run_gives_a_hit_at_every_node(store, other, run, key, never, tmp_path):
    reported: list[tuple[int, int]] = []
    packed = pack(store, run, tmp_path / "run.tar.zst", report=lambda done, total: reported.append((done, total)))
    assert (packed.artifacts, packed.left_out, packed.packed) == (3, [], (tmp_path / "run.tar.zst").stat().st_size)
    assert reported[-1] == (packed.bytes, packed.bytes)
    done = unpack(other, tmp_path / "run.tar.zst")
    assert (done.recipe, done.artifacts, done.new, done.kept) == ("tiny", 3, 3, [])
    for node, ref in run.nodes.items():
        record = store.record(ref.key)
        assert other.record(ref.key) == record
        assert other.build(Request(replace(key(), hex=ref.key), node=node), never).hit
        assert everything(other.objects / ref.digest) == everything(ref.path)
    (imported,) = runs(other)
    assert (imported.name, imported.created, imported.details) == (run.name, run.created, run.details)
    assert {node: (ref.key, ref.digest) for node, ref in imported.nodes.items()} == {
        node: (ref.key, ref.digest) for node, ref in run.nodes.items()
    }
    assert verify(other) == []
    assert list(other.work.iterdir()) == []
    assert not [path for path in other.locks.iterdir() if path.name.startswith("unpack")]
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


def test_an_existing_file_is_kept(store, run, tmp_path):
    path = tmp_path / "run.tar.zst"
    path.write_text("mine")
    with pytest.raises(StoreError, match=r"run\.tar\.zst: exists already; --overwrite"):
        pack(store, run, path)
    assert path.read_text() == "mine"
    pack(store, run, path, overwrite=True)
    assert path.stat().st_size > 1000
    with pytest.raises(StoreError, match="no such folder"):
        pack(store, run, tmp_path / "nowhere" / "run.tar.zst")


def test_a_path_that_can_be_no_pack_is_reported_before_the_work(store, run, tmp_path, monkeypatch):
    monkeypatch.setattr("artifacts.packs.pack.lineage", None)
    (tmp_path / "folder.tar.zst").mkdir()
    for name in ("run.tar.gz", "run.zst", "run"):
        with pytest.raises(StoreError, match=rf"/{name}: a pack is a tar by zstd: its name must end in \.tar\.zst$"):
            pack(store, run, tmp_path / name, overwrite=True)
    for folder in (tmp_path, tmp_path / "folder.tar.zst"):
        with pytest.raises(StoreError, match=rf"{folder}: is a folder$"):
            pack(store, run, folder, overwrite=True)


def test_an_incomplete_run_is_not_written(store, run, key, writes, tmp_path):
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
    original = record.read_bytes()
    record.write_bytes(rewritten(original, run.nodes["stage1"].digest, run.nodes["tokens"].digest))
    with pytest.raises(StoreError, match="stage1 was built again since"):
        pack(store, run, path)
    record.unlink()
    with pytest.raises(StoreError, match="has lost the record of stage1"):
        pack(store, run, path)
    assert not [name for name in os.listdir(tmp_path) if "run.tar" in name]


def test_a_disk_that_fills_up_leaves_no_file(store, run, tmp_path, monkeypatch):
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("artifacts.packs.archive.write_archive", full)
    with pytest.raises(StoreError, match="no space left"):
        pack(store, run, tmp_path / "run.tar.zst")
    assert os.listdir(tmp_path) == ["store"]


def test_a_lean_pack_holds_the_lineage_and_gives_the_other_hits(store, other, run, tmp_path):
    with pytest.raises(StoreError, match="--without encode: the run of tiny has bm25, finetune, stage1, tokens"):
        pack(store, run, tmp_path / "lean.tar.zst", without=["encode"])
    (run.nodes["bm25"].path / "model.bin").unlink()  # what is left out need not exist
    packed = pack(store, run, tmp_path / "lean.tar.zst", without=["bm25"])
    assert (packed.artifacts, packed.left_out) == (2, ["bm25"])
    done = unpack(other, tmp_path / "lean.tar.zst")
    assert (done.artifacts, done.left_out) == (2, ["bm25"])
    assert [other.problem(other.record(run.nodes[node].key)) for node in ("tokens", "stage1")] == [None, None]
    assert other.record(run.nodes["bm25"].key) is None
    assert verify(other) == []
    assert not runs(other)[0].nodes["bm25"].path.exists()


def test_inputs_beyond_the_nodes_of_a_run_are_packed_too(store, other, run, tmp_path):
    record_run(store, "only", {"stage1": run.nodes["stage1"]}, {"ablation": {}})
    only = runs(store, "only")[0]
    assert pack(store, only, tmp_path / "only.tar.zst").artifacts == 3
    assert unpack(other, tmp_path / "only.tar.zst").new == 3
    assert other.record(run.nodes["tokens"].key)


def test_gc_keeps_what_is_being_checked_and_written(store, run, tmp_path, monkeypatch):
    removed = []
    (store.runs / next(iter(os.listdir(store.runs)))).unlink()

    def collect(*arguments: Any) -> None:
        removed.extend(gc(store, runs=0, days=0, dry_run=True))

    monkeypatch.setattr(store, "problem", collect)
    pack(store, run, tmp_path / "run.tar.zst", report=collect)
    assert removed == []
    assert len(gc(store, runs=0, days=0, dry_run=True)) == 6


def test_another_artifact_for_a_key_is_reported_and_replaced_only_on_request(store, other, run, key, writes, tmp_path):
    pack(store, run, tmp_path / "run.tar.zst")
    tokens = other.build(Request(key(stage="tokens", inputs={}), node="tokens"), writes("other tokens")).ref
    before = everything(other.root)
    with pytest.raises(StoreError, match=r"holds another artifact of tokens .*; --replace takes "):
        unpack(other, tmp_path / "run.tar.zst")
    assert everything(other.root) == before
    done = unpack(other, tmp_path / "run.tar.zst", replace=True)
    assert (done.new, done.kept) == (2, [])
    assert other.record(tokens.key).digest == run.nodes["tokens"].digest
    assert tokens.path.exists()  # until gc


def test_the_store_keeps_its_own_artifact_if_bytes_cannot_be_equal(store, other, run, key, writes, tmp_path):
    pack(store, run, tmp_path / "run.tar.zst")
    local = built_bm25(other, key, writes, run.nodes["tokens"], "lucene again")
    assert local.key == run.nodes["bm25"].key
    done = unpack(other, tmp_path / "run.tar.zst")
    assert (done.new, done.kept) == (2, ["bm25"])
    assert runs(other)[0].nodes["bm25"] == local
    assert verify(other) == []


def test_a_broken_artifact_is_replaced_and_a_whole_one_keeps_its_record(store, other, run, tmp_path):
    pack(store, run, tmp_path / "run.tar.zst")
    unpack(other, tmp_path / "run.tar.zst")
    stage1, tokens = (other.record(run.nodes[node].key) for node in ("stage1", "tokens"))
    (other.objects / stage1.digest / "model.bin").write_bytes(b"y" * 9000 * 256)  # of the right size
    with other.commit_lock():
        other.write(replace(tokens, host="here"))
    unpack(other, tmp_path / "run.tar.zst")
    assert verify(other) == []
    assert other.record(tokens.key).host == "here"
