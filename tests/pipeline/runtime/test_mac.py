"""A Mac's GPU (MPS) as a device."""

import os
from pathlib import Path

import pytest
from machines import make_machine

from pipeline.errors import InputError
from pipeline.runtime import launch
from pipeline.runtime.gpu_ranks import fed_ranks
from pipeline.runtime.host import has_apple_silicon
from pipeline.runtime.launch import (
    MPS_FALLBACK,
    check_processes,
    child_environment,
    device_of,
    layout,
    of_shards,
)
from pipeline.runtime.work import silent


@pytest.fixture(autouse=True)
def _children_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"), prepend=os.pathsep)


@pytest.fixture
def on(monkeypatch):
    """on(system, processor, GPUs) pretends to be such a machine."""

    def pretend(system: str, processor: str, gpus: int = 0) -> None:
        monkeypatch.setattr("sys.platform", system)
        monkeypatch.setattr("platform.machine", lambda: processor)
        monkeypatch.setattr(launch, "gpus", lambda: gpus)

    return pretend


@pytest.mark.parametrize(
    ("system", "processor", "gpus", "device"),
    [
        ("darwin", "arm64", 0, "mps"),
        ("darwin", "x86_64", 0, "cpu"),
        ("linux", "arm64", 0, "cpu"),
        ("linux", "x86_64", 0, "cpu"),
        ("linux", "x86_64", 2, "cuda"),
    ],
)
def test_auto_is_the_best_device_of_the_machine(on, system, processor, gpus, device):
    on(system, processor, gpus)
    assert device_of(make_machine(device="auto")) == device
    assert has_apple_silicon() == (device == "mps")
    for named in ("cpu", "cuda", "mps"):
        assert device_of(make_machine(device=named)) == named


def test_a_macs_gpu_has_one_process_with_all_cores(on, tmp_path, monkeypatch):
    on("darwin", "arm64")
    monkeypatch.setattr(launch, "cores", lambda: 10)
    machine = make_machine(device="auto", ranks="auto", threads="auto")
    assert layout(machine, "mps", tmp_path) == (1, 10)
    assert layout(of_shards(machine), "mps", tmp_path) == (1, 10)
    assert layout(machine.model_copy(update={"threads": 4}), "mps", tmp_path) == (1, 4)
    assert fed_ranks(machine, lambda: 1e6).ranks == "auto"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ranks": 2}, r"^machine\.ranks: 2, "),
        ({"ranks": "auto", "torchrun": ["--nnodes=2"]}, r"^machine\.torchrun: "),
        ({"precision": "bfloat16"}, r"^machine\.precision: bfloat16, but a Mac's GPU computes in float32"),
    ],
)
def test_what_a_macs_gpu_cannot_do_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        check_processes(make_machine(device="mps", **fields))
    check_processes(make_machine(device="cpu", **fields))
    check_processes(make_machine(device="mps", ranks="auto"))


def test_the_cpu_computes_what_a_macs_gpu_cannot(monkeypatch):
    monkeypatch.delenv(MPS_FALLBACK, raising=False)
    assert child_environment("mps", 1)[MPS_FALLBACK] == "1"
    assert not {MPS_FALLBACK} & {*child_environment("cpu", 1), *child_environment("cuda", 1)}
    assert "GLIBC_TUNABLES" not in child_environment("mps", 1)
    monkeypatch.setenv(MPS_FALLBACK, "0")
    assert child_environment("mps", 1)[MPS_FALLBACK] == "0"


def test_a_gpu_that_torch_cannot_use_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"^machine\.device: torch cannot use this machine's GPU by mps"):
        launch.launch("children:echo", {}, make_machine(device="mps"), silent, tmp_path)
