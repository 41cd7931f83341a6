"""Runs at an address: sent, continued, fetched, and refused if damaged."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from packs import built_bm25, everything

from artifacts import runs as runs_module
from artifacts.errors import StoreError
from artifacts.gc import gc
from artifacts.packs.pack import pack
from artifacts.packs.pull import pull
from artifacts.packs.push import push, pushed_runs
from artifacts.packs.remote_folder import RemoteFolder
from artifacts.packs.unpack import unpack
from artifacts.runs import runs
from artifacts.store import Request, Store
from artifacts.verify import verify

RUN = "20261122T000000.000000Z-tiny"


@pytest.fixture(params=["memory", "folder"])
def address(request, tmp_path) -> Iterator[str]:
    if request.param == "folder":
        yield f"file://{tmp_path}/there"
        return
    yield "memory://bucket/runs"
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def folder(tmp_path) -> Any:
    """A local address as a path."""
    return tmp_path / "there"


def test_a_pulled_run_gives_a_hit_at_every_node(store, other, run, key, never, address):
    reported: list[tuple[int, int]] = []
    sent = push(store, run, address, report=lambda done, total: reported.append((done, total)))
    assert (sent.run, sent.artifacts, sent.new, sent.left_out) == (RUN, 3, 3, [])
    assert reported[-1] == (sent.sent, sent.sent)
    assert pushed_runs(address) == [RUN]
    reported.clear()
    done = pull(other, address, "tiny", report=lambda done, total: reported.append((done, total)))
    assert (done.recipe, done.artifacts, done.new) == ("tiny", 3, 3)
    assert 2_000_000 < done.bytes < sent.bytes
    assert reported[-1][0] == reported[-1][1] > 2_000_000
    for node, ref in run.nodes.items():
        assert other.record(ref.key) == store.record(ref.key)
        assert other.build(Request(replace(key(), hex=ref.key), node=node), never).hit
        assert everything(other.objects / ref.digest) == everything(ref.path)
    assert runs(other)[0].details == run.details
    assert verify(other) == []
    assert list(other.work.iterdir()) == []
    reported.clear()
    assert pull(other, address, RUN).new == 0
    assert (len(runs(other)), reported) == (1, [])


def test_only_what_is_missing_is_sent(store, run, key, writes, address, monkeypatch):
    push(store, run, address)
    written = watch_writes(monkeypatch)
    again = push(store, run, address)
    assert (again.new, again.sent, written) == (0, 0, [])
    RemoteFolder(address).system.rm_file(f"{RemoteFolder(address).root}/objects/{run.nodes['tokens'].digest}/model.bin")
    assert push(store, run, address).new == 1
    assert written == [f"objects/{run.nodes['tokens'].digest}/{name}" for name in ("model.bin", "manifest.json")]


def watch_writes(monkeypatch) -> list[str]:
    write, written = RemoteFolder.write, []

    def watched(self: RemoteFolder, name: str, pieces: Any) -> None:
        written.append(name)
        write(self, name, pieces)

    monkeypatch.setattr(RemoteFolder, "write", watched)
    return written


@pytest.mark.parametrize("stop_at", [1, 3, 5, 8])
def test_an_interrupted_push_is_completed_by_the_same_command(store, other, run, address, stop_at, monkeypatch):
    write, count = RemoteFolder.write, 0

    def stopping(self: RemoteFolder, name: str, pieces: Any) -> None:
        nonlocal count
        count += 1
        if count > stop_at:
            raise ConnectionResetError("reset by peer")
        write(self, name, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(RemoteFolder, "write", stopping)
        with pytest.raises(ConnectionResetError):
            push(store, run, address)
    with pytest.raises(StoreError, match="has no run"):
        pull(other, address)
    written = watch_writes(monkeypatch)
    push(store, run, address)
    assert len(written) == len({*written}) == 10 - stop_at
    assert pull(other, address).new == 3
    assert verify(other) == []


def test_an_interruption_within_a_file_leaves_no_part_of_it(store, run, address, monkeypatch):
    def stop(done: int, total: int) -> None:
        if done > 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push(store, run, address, report=stop)
    digest = run.nodes["stage1"].digest
    assert "model.bin" not in RemoteFolder(address).sizes(f"objects/{digest}")
    push(store, run, address)
    assert RemoteFolder(address).sizes(f"objects/{digest}")["model.bin"] == 9000 * 256


def test_a_file_stays_as_it_was_if_its_replacement_fails(address):
    def stopping() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    there = RemoteFolder(address)
    there.write("runs/one", [b"whole"])
    with pytest.raises(KeyboardInterrupt):
        there.write("runs/one", stopping())
    assert there.read("runs/one", 99) == b"whole"
    assert there.sizes("") == {"runs/one": 5}
    there.write("runs/one", [b"an", b"other"])
    assert there.read("runs/one", 99) == b"another"
    assert there.sizes("") == {"runs/one": 7}


def test_a_damaged_record_is_sent_again(store, run, folder):
    push(store, run, str(folder))
    record = folder / f"runs/{RUN}.tar.zst"
    data = record.read_bytes()
    record.write_bytes(bytes(len(data)))
    assert push(store, run, str(folder)).sent == len(data)
    assert record.read_bytes() == data


def test_a_killed_push_and_a_killed_pull_are_completed(store, other, run, folder, python, until):
    script = """
        import sys, time
        from pathlib import Path
        from artifacts.packs import pull, push
        from artifacts.runs import runs
        from artifacts.store import Store
        store, slow = Store(Path(sys.argv[2])), lambda done, total: time.sleep(done > 1_000_000)
        if sys.argv[1] == "push":
            push.push(store, runs(store)[0], sys.argv[3], report=slow)
        else:
            pull.pull(store, sys.argv[3], report=slow)
    """
    process = python(script, "push", store.root, folder)
    until(lambda: any(folder.glob("objects/*/model.bin")) and sum(p.stat().st_size for p in folder.rglob("*")) > 10**6)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "runs").exists()
    push(store, run, str(folder))
    other.prepare()
    process = python(script, "pull", other.root, folder)
    until(lambda: any(p.stat().st_size > 10**6 for p in other.work.glob("unpack-*/objects/*/model.bin")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (runs(other), verify(other)) == ([], [])
    present = len(other.records())
    assert pull(other, str(folder)).new == 3 - present
    assert verify(other) == []
    assert list(other.work.iterdir()) == []


def damaged(folder, run) -> dict[str, Any]:
    """{part of the message: a change to the folder}"""
    model = folder / f"objects/{run.nodes['stage1'].digest}/model.bin"
    manifest = model.with_name("manifest.json")
    lineage = folder / f"runs/{RUN}.tar.zst"
    data = model.read_bytes()
    return {
        "model.bin was changed": lambda: model.write_bytes(b"x" + data[1:]),
        "model.bin: has fewer than": lambda: model.write_bytes(data[:-1]),
        "model.bin: has more than": lambda: model.write_bytes(data + b"x"),
        "model.bin: no such file": model.unlink,
        "manifest.json: has": lambda: manifest.write_text("{}"),
        "cannot be decompressed": lambda: lineage.write_bytes(b"hello " * 99),
        "truncated compressed": lambda: lineage.write_bytes(lineage.read_bytes()[:700]),
    }


@pytest.mark.parametrize("what", range(7))
def test_a_damaged_object_is_refused(store, other, run, folder, what):
    push(store, run, str(folder))
    line, change = [*damaged(folder, run).items()][what]
    change()
    with pytest.raises(StoreError) as error:
        pull(other, str(folder))
    assert str(error.value).startswith(f"{folder}")
    assert line in str(error.value)
    assert "\n" not in str(error.value)
    assert runs(other) == []
    assert not (other.objects / run.nodes["stage1"].digest).exists()
    assert not [*other.work.glob("*")]
    assert verify(other) == []


def test_a_damaged_object_is_sent_again_after_its_removal(store, other, run, folder):
    push(store, run, str(folder))
    name = f"objects/{run.nodes['stage1'].digest}/"
    (folder / name / "model.bin").write_bytes(bytes(9000 * 256))
    with pytest.raises(StoreError, match=f"remove the folder {name.rstrip('/')} there and push the run again"):
        pull(other, str(folder))
    for path in (folder / name).iterdir():
        path.unlink()
    assert push(store, run, str(folder)).new == 1
    assert pull(other, str(folder)).recipe == "tiny"


def test_a_foreign_manifest_is_replaced_at_a_push(store, other, run, folder):
    push(store, run, str(folder))
    (folder / f"objects/{run.nodes['tokens'].digest}/manifest.json").write_text('{"files": []}')
    assert push(store, run, str(folder)).new == 1
    assert pull(other, str(folder)).new == 3


def test_a_changed_artifact_is_not_sent(store, run, folder):
    model = run.nodes["stage1"].path / "model.bin"
    model.write_bytes(b"x" + model.read_bytes()[1:])
    with pytest.raises(StoreError, match=r"model\.bin: was changed; `cocondenser artifacts verify`"):
        push(store, run, str(folder))
    assert not [*folder.rglob(f"{run.nodes['stage1'].digest}/model.bin")]
    assert not (folder / "runs").exists()


def test_the_run_is_named_by_recipe_or_time(store, other, run, key, writes, folder):
    with pytest.raises(StoreError, match=r"there: has no run; `cocondenser artifacts push` sends one$"):
        pushed_runs(str(folder))
    push(store, run, str(folder))
    with pytest.raises(StoreError, match="has no run 'tyni', only runs of tiny; `cocondenser artifacts pushed`"):
        pull(other, str(folder), "tyni")
    assert pull(other, str(folder), RUN).recipe == "tiny"


def test_a_lean_run_has_its_lineage(store, other, run, folder):
    with pytest.raises(StoreError, match="--without encode: the run of tiny has"):
        push(store, run, str(folder), without=["encode"])
    sent = push(store, run, str(folder), without=["bm25"])
    assert (sent.artifacts, sent.left_out) == (2, ["bm25"])
    assert pull(other, str(folder)).left_out == ["bm25"]
    assert push(store, run, str(folder)).new == 1
    assert pull(other, str(folder)).new == 1


def test_another_artifact_for_a_key(store, other, run, key, writes, folder):
    push(store, run, str(folder))
    local = other.build(Request(key(stage="tokens", inputs={}), node="tokens"), writes("other tokens")).ref
    before = everything(other.root)
    with pytest.raises(StoreError, match=r"holds another artifact of tokens .*; --replace takes "):
        pull(other, str(folder))
    assert everything(other.root) == before
    assert pull(other, str(folder), replace=True).new == 2
    assert other.record(local.key).digest == run.nodes["tokens"].digest


def test_an_artifact_whose_bytes_vary_is_not_fetched(store, other, run, key, writes, folder):
    push(store, run, str(folder))
    local = built_bm25(other, key, writes, run.nodes["tokens"], "lucene again")
    assert pull(other, str(folder)).kept == ["bm25"]
    assert runs(other)[0].nodes["bm25"] == local
    assert not (other.objects / run.nodes["bm25"].digest).exists()


@pytest.mark.parametrize("by", ["pull", "unpack"])
def test_gc_keeps_the_artifacts_of_a_run_that_is_being_added(store, other, run, key, writes, tmp_path, by, monkeypatch):
    local = built_bm25(other, key, writes, run.nodes["tokens"], "lucene again")
    os.utime(other.keys / f"{local.key}.json", (1000, 1000))
    record_run, removed = runs_module.record_run, []

    def after_gc(*arguments: Any) -> Any:
        removed.extend(gc(other, runs=0, days=0))
        return record_run(*arguments)

    monkeypatch.setattr(runs_module, "record_run", after_gc)
    if by == "pull":
        push(store, run, str(tmp_path / "there"))
        done = pull(other, str(tmp_path / "there"))
    else:
        pack(store, run, tmp_path / "run.tar.zst")
        done = unpack(other, tmp_path / "run.tar.zst")
    assert (done.new, done.kept, removed) == (2, ["bm25"], [])
    assert all(other.record(ref.key) and ref.path.is_dir() for ref in runs(other)[0].nodes.values())
    assert not [*other.locks.glob("run-*")]


def test_a_damaged_artifact_of_the_store_is_fetched_again(store, other, run, folder):
    push(store, run, str(folder))
    pull(other, str(folder))
    (other.objects / run.nodes["stage1"].digest / "model.bin").write_bytes(b"y" * 9000 * 256)
    done = pull(other, str(folder))
    assert "model.bin was changed: set aside" in done.damaged[0]
    assert verify(other) == []


def test_pushes_at_once_give_one_whole_address(store, other, run, folder):
    failures: list[BaseException] = []

    def work() -> None:
        try:
            push(Store(store.root), run, str(folder))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert pull(other, str(folder)).new == 3


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("", "'': an address must name a folder or a bucket"),
        ("/", "'/': an address must name a folder or a bucket"),
        ("nosuch://x", "nosuch://x: Protocol not known: nosuch"),
        ("sftp://me:secret@host/x", "sftp://host/x: "),
        ("nosuch://me:p@secret@host/x", "nosuch://host/x: "),
        ("ftp://me:a/secret@127.0.0.1:1/x", "ftp://127.0.0.1:1/x: '/' in a user's name or password must be written"),
        ("s3://ME:secret@bucket/x", "s3://bucket/x"),
        ("http://127.0.0.1:1/x?sig=secret", "http://127.0.0.1:1/x"),
    ],
)
def test_wrong_addresses_are_one_line(store, run, address, line):
    with pytest.raises(StoreError) as error:
        push(store, run, address)
    assert str(error.value).startswith(line)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_an_address_without_a_folder_is_shown_without_its_password(monkeypatch):
    monkeypatch.setattr("fsspec.url_to_fs", lambda address: (MemoryFileSystem(), "/"))
    with pytest.raises(StoreError, match=r"^'ftp://host/': an address must name a folder or a bucket$"):
        RemoteFolder("ftp://me:secret@host/")


def test_a_killed_push_leaves_nothing_for_ever(store, run, folder):
    push(store, run, str(folder))
    objects = folder / "objects" / run.nodes["tokens"].digest
    (objects / "model.bin").unlink()
    old, new = (objects / f".{letter * 32}.partial" for letter in "ab")
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    push(store, run, str(folder))
    assert (old.exists(), new.exists(), (objects / "model.bin").exists()) == (False, True, True)


def test_other_places_are_refused(store, run, folder, tmp_path):
    for address in (str(store.objects), (store.root / "new" / "folder").as_uri()):
        with pytest.raises(StoreError, match=f"inside the store {store.root}; choose a folder outside"):
            push(store, run, address)
    assert not (store.objects / "objects").exists()
    with pytest.raises(StoreError, match="store: is a store; choose another address"):
        push(store, run, str(store.root))
    (tmp_path / "file").write_text("mine")
    for address in (str(tmp_path / "file"), (tmp_path / "file").as_uri()):
        with pytest.raises(StoreError, match=r"/file: a file, not a folder$"):
            push(store, run, address)
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):
        return  # root may write everywhere
    with pytest.raises(StoreError, match="Permission denied"):
        push(store, run, str(folder))
