"""The precision of a process: chosen by the processor's speed, kept by a resumed training."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from machines import make_machine

from pipeline.runtime import bfloat16, precision
from pipeline.runtime.launch import precision_of

X86 = "model name\t: A Processor\nflags\t\t: fpu avx512_bf16 avx2 amx_bf16\n"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bfloat16, "PROCESSORS", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(X86)
    bfloat16.speedup.cache_clear()
    yield tmp_path / "cache" / "cocondenser" / "bfloat16.json"
    bfloat16.speedup.cache_clear()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands of measurements; each one prints 2.5."""
    commands: list[str] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command[-1])
        return subprocess.CompletedProcess(command, 0, stdout="2.5\n")

    monkeypatch.setattr(bfloat16.subprocess, "run", run)
    return commands


def test_a_processor_is_measured_once(own_cache, measured):
    assert bfloat16.speedup() == 2.5
    bfloat16.speedup.cache_clear()  # as in another process
    assert bfloat16.speedup() == 2.5
    assert measured == ["pipeline.runtime.bfloat16"]
    (key,) = json.loads(own_cache.read_text())
    assert key.startswith("A Processor amx_bf16 avx512_bf16, torch ")


def test_another_processor_is_measured_too(own_cache, measured):
    bfloat16.speedup()
    bfloat16.PROCESSORS.write_text(X86.replace("amx_bf16", ""))  # a virtual machine may hide it
    bfloat16.speedup.cache_clear()
    bfloat16.speedup()
    assert len(measured) == len(json.loads(own_cache.read_text())) == 2


@pytest.mark.parametrize("content", ["", "[1]", '{"A Processor": "fast"}', "{"])
def test_a_damaged_cache_is_written_again(own_cache, measured, content):
    own_cache.parent.mkdir(parents=True)
    own_cache.write_text(content)
    assert bfloat16.speedup() == 2.5
    assert 2.5 in json.loads(own_cache.read_text()).values()


def test_a_cache_that_cannot_be_written_is_no_error(own_cache, measured):
    own_cache.parent.parent.write_text("a file where the folder should be")
    assert bfloat16.speedup() == 2.5


def test_the_measurement_is_a_ratio_of_speeds(monkeypatch):
    monkeypatch.setattr(bfloat16, "SHAPES", ((8, 16, 16), (16, 16, 16)))
    monkeypatch.setattr(bfloat16, "FASTER", 0.0)
    assert bfloat16.measure() > 0


@pytest.mark.parametrize(
    ("device", "choice", "ratio", "expected"),
    [
        ("cpu", "auto", 1.29, "float32"),
        ("cpu", "auto", 1.31, "bfloat16"),
        ("cpu", "float32", 3.0, "float32"),
        ("cpu", "bfloat16", 0.4, "bfloat16"),
        ("cuda", "auto", 0.4, "bfloat16"),
        ("cuda", "float32", 3.0, "float32"),
        ("mps", "auto", 3.0, "float32"),
    ],
)
def test_the_speed_of_the_processor_decides(monkeypatch, tmp_path, device, choice, ratio, expected):
    monkeypatch.setattr(bfloat16, "speedup", lambda: ratio)
    assert precision_of(make_machine(device=device, precision=choice), tmp_path) == expected


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"device": "cpu", "precision": "bfloat16"}, "bfloat16"),
        ({"device": "cpu"}, "float32"),  # of an earlier version
        ({"device": "cuda", "precision": "float32"}, "float32"),  # of another device: the choice counts
        ({"device": "cuda"}, "float32"),
    ],
)
def test_a_resumed_training_keeps_the_precision_of_its_checkpoint(tmp_path, saved, expected):
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3" / "state.json").write_text(json.dumps(saved))
    assert precision_of(make_machine(precision="float32"), tmp_path) == expected


@pytest.fixture
def own_precision(monkeypatch):
    monkeypatch.setattr(precision, "_precision", None)
    return monkeypatch


@pytest.mark.parametrize(
    ("chosen", "device", "expected"),
    [
        (None, "cpu", None),
        ("float32", "cpu", None),
        ("bfloat16", "cpu", torch.bfloat16),
        ("bfloat16", "mps", None),
        (None, "cuda", torch.bfloat16),
        ("bfloat16", "cuda", torch.bfloat16),
        ("float32", "cuda", None),
    ],
)
def test_the_type_of_products(own_precision, chosen, device, expected):
    own_precision.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    precision.use_precision(chosen)
    assert precision.low_precision(device) == expected
    assert precision.precision_name(device) == ("bfloat16" if expected else "float32")


def test_a_gpu_before_ampere_computes_in_float16(own_precision):
    own_precision.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    precision.use_precision("bfloat16")
    assert precision.precision_name("cuda") == "float16"
