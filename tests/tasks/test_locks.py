"""Two runs never share a GPU."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pipeline.runtime.work import DeviceName
from tasks import locks


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's listing of two GPUs."""
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho '0, GPU-aaaa'\necho '1, GPU-bbbb'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [0, 1]), ("GPU-bbbb", [1]), ("GPU-b", [1]), ("", []), ("-1", [])],
)
def test_only_visible_gpus_are_listed(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert locks.gpus() == expected


def test_without_a_driver_no_lock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert locks.gpus() == []
    with locks.turn_on_gpus("auto", print, tmp_path):
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_another_device_takes_no_lock(two_gpus: None, tmp_path: Path, device: DeviceName) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    with locks.turn_on_gpus(device, print, folder):
        assert not list(folder.iterdir())


HOLD = """
    import sys, time
    from pathlib import Path
    from tasks.locks import turn_on_gpus
    with turn_on_gpus("auto", print, Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(60)
"""


def test_the_second_waits_until_the_first_is_killed(two_gpus: None, tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waited: list[int] = []

    def on_wait(index: int) -> None:
        waited.append(index)
        holder.kill()

    started = time.monotonic()
    with locks.turn_on_gpus("cuda", on_wait, folder):
        assert waited == [0]
        assert time.monotonic() - started < 30
    holder.wait()


def test_another_gpu_needs_no_wait(two_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with locks.turn_on_gpus("auto", waited.append, tmp_path):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        with locks.turn_on_gpus("auto", waited.append, tmp_path):
            assert not waited
