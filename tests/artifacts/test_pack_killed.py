"""Interrupted imports, and imports at the same time."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from artifacts.gc import gc
from artifacts.packs.pack import pack
from artifacts.packs.unpack import unpack
from artifacts.records import Ref
from artifacts.runs import runs
from artifacts.store import Store
from artifacts.verify import verify


def test_a_killed_import_leaves_the_store_unchanged_and_can_be_repeated(store, other, run, python, until, tmp_path):
    pack(store, run, tmp_path / "run.tar.zst")
    script = """
        import sys, time
        from pathlib import Path
        from artifacts.store import Store
        from artifacts.packs.unpack import unpack
        unpack(Store(Path(sys.argv[1])), Path(sys.argv[2]), report=lambda done, total: time.sleep(done > 1_000_000))
    """
    process = python(script, other.root, tmp_path / "run.tar.zst")
    until(lambda: any(other.work.glob("unpack-*/objects/*/model.bin")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not other.is_other_folder()  # so that the same command continues
    assert [path.name for path in other.root.iterdir() if path not in (other.work, other.locks)] == []
    assert gc(other, runs=0, days=1) == []
    assert [item.why for item in gc(other, runs=0, days=0, dry_run=True)] == ["left by a build that did not end"]
    assert unpack(other, tmp_path / "run.tar.zst").new == 3
    assert list(other.work.iterdir()) == []


def test_an_import_interrupted_between_two_artifacts_leaves_whole_ones(store, other, run, tmp_path, monkeypatch):
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


def test_two_imports_at_once_give_one_whole_store(store, other, run, tmp_path):
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
