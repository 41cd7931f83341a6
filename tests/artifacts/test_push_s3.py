"""Runs at an S3 server."""

import socket
from collections.abc import Iterator

import pytest

from artifacts.errors import StoreError
from artifacts.packs.pull import pull
from artifacts.packs.push import push, pushed_runs
from artifacts.packs.remote_folder import RemoteFolder
from artifacts.verify import verify

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of an empty bucket on a server of this machine."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = server_module.ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patched.setenv("AWS_ACCESS_KEY_ID", "a")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "b")
        patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("models")
        yield "s3://models"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_a_run_travels_by_s3(bucket, store, other, run):
    address = f"{bucket}/runs"

    def stop(done: int, total: int) -> None:
        if done > 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push(store, run, address, report=stop)
    with pytest.raises(StoreError, match="has no run"):
        pushed_runs(address)
    sent = push(store, run, address)
    assert 0 < sent.new <= 3
    assert push(store, run, address).new == 0
    with pytest.raises(KeyboardInterrupt):
        pull(other, address, report=stop)
    assert verify(other) == []
    present = len(other.records())
    assert pull(other, address, "tiny").new == 3 - present
    assert verify(other) == []
    assert list(other.work.iterdir()) == []


@pytest.mark.parametrize("size", [5, 60 << 20])
def test_a_file_that_fails_is_not_in_the_bucket(bucket, size):
    def wrong() -> Iterator[bytes]:
        for _ in range(0, size, 1 << 20):
            yield bytes(min(size, 1 << 20))
        raise StoreError("was changed")

    there = RemoteFolder(f"{bucket}/failed")
    removals = []
    there.system.rm_file = removals.append  # this user may not remove
    with pytest.raises(StoreError, match=r"^was changed$"):
        there.write("new", wrong())
    assert not there.has("new")
    there.write("one", [b"whole"])
    with pytest.raises(StoreError, match=r"^was changed$"):
        there.write("one", wrong())
    assert there.read("one", 99) == b"whole"
    assert removals == []
    assert "Uploads" not in there.system.call_s3("list_multipart_uploads", Bucket="models")
    there.write("one", iter([bytes(1 << 20)] * 60))
    there.write("empty", [])
    assert there.sizes("") == {"empty": 0, "one": 60 << 20}
    assert not there.system.transaction.files


def test_faults_at_s3_are_one_line(bucket, store, other, run, monkeypatch):
    address = f"{bucket}/damaged"
    push(store, run, address)
    there, name = RemoteFolder(address), f"objects/{run.nodes['stage1'].digest}/model.bin"
    there.system.pipe_file(f"{there.root}/{name}", bytes(9000 * 256))
    with pytest.raises(StoreError, match=rf"^{address}: {name} was changed; remove the folder"):
        pull(other, address)
    assert not (other.objects / run.nodes["stage1"].digest).exists()
    with pytest.raises(StoreError, match=r"^s3://nosuch/runs/\S+: no such file, folder or bucket$"):
        push(store, run, "s3://nosuch/runs")
    assert not there.system.exists("nosuch")
    with pytest.raises(StoreError, match=r"^s3://nosuch/runs: has no run"):
        pull(other, "s3://nosuch/runs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    there.system.clear_instance_cache()
    with pytest.raises(StoreError, match=r"^s3://models/runs\S*: Could not connect") as error:
        pull(other, "s3://models/runs")
    assert "\n" not in str(error.value)
