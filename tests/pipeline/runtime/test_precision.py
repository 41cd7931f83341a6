"""The precision of a process: chosen by the processor's speed, kept by a resumed training."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from machines import make_machine

from pipeline.runtime import bfloat16, host, precision
from pipeline.runtime.checkpoints import save_state
from pipeline.runtime.launch import precision_of, without_model
from pipeline.runtime.measured_cache import write_figures

X86 = "model name\t: A Processor\nflags\t\t: fpu avx512_bf16 avx2 amx_bf16\n"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "PROCESSORS", tmp_path / "cpuinfo")
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


def test_the_kept_ratio_is_the_one_that_decides(own_cache, monkeypatch):
    measured = subprocess.CompletedProcess([], 0, stdout="1.29996\n")
    monkeypatch.setattr(bfloat16.subprocess, "run", lambda *command, **options: measured)
    first = bfloat16.speedup()
    bfloat16.speedup.cache_clear()
    assert bfloat16.speedup() == first


def test_of_two_measurements_at_once_the_first_counts(own_cache, measured, monkeypatch):
    run = bfloat16.subprocess.run

    def while_another_measures(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        write_figures(own_cache, {f"{bfloat16.processor()}, torch {version('torch')}": 1.2})
        return run(command, **options)

    monkeypatch.setattr(bfloat16.subprocess, "run", while_another_measures)
    assert bfloat16.speedup() == 1.2
    assert [*json.loads(own_cache.read_text()).values()] == [1.2]


def test_another_processor_is_measured_too(own_cache, measured):
    bfloat16.speedup()
    host.PROCESSORS.write_text(X86.replace("amx_bf16", ""))  # a virtual machine may hide it
    bfloat16.speedup.cache_clear()
    bfloat16.speedup()
    assert len(measured) == len(json.loads(own_cache.read_text())) == 2


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000])
def test_a_damaged_cache_is_written_again(own_cache, measured, content):
    own_cache.parent.mkdir(parents=True)
    own_cache.write_text(content)
    assert bfloat16.speedup() == 2.5
    assert 2.5 in json.loads(own_cache.read_text()).values()


@pytest.mark.parametrize("ratio", ["1e999", "-3.0", "0.0", "NaN", "true", '"fast"', "1" + 400 * "0", "null"])
def test_a_ratio_that_cannot_be_is_measured_again(own_cache, measured, ratio):
    bfloat16.speedup()
    own_cache.write_text(own_cache.read_text().replace("2.5", ratio))
    bfloat16.speedup.cache_clear()
    assert bfloat16.speedup() == 2.5
    assert len(measured) == 2


def test_a_cache_that_cannot_be_written_is_no_error(own_cache, measured):
    own_cache.parent.parent.write_text("a file where the folder should be")
    assert bfloat16.speedup() == 2.5


def test_nothing_unfinished_stays_where_the_cache_cannot_be_replaced(own_cache, measured):
    own_cache.mkdir(parents=True)
    assert bfloat16.speedup() == 2.5
    assert [*own_cache.parent.iterdir()] == [own_cache]


@pytest.mark.parametrize(
    ("stderr", "shown"), [("", "killed by SIGILL"), ("what\nno memory", "killed by SIGILL: no memory")]
)
def test_a_failed_measurement_is_one_line(own_cache, monkeypatch, caplog, stderr, shown):
    failed = subprocess.CompletedProcess([], -4, stdout="", stderr=stderr)
    monkeypatch.setattr(bfloat16.subprocess, "run", lambda *command, **options: failed)
    assert bfloat16.speedup() == 1.0
    line = f"the speed of bfloat16 cannot be measured, so float32 is taken to be as fast ({shown})"
    assert caplog.messages == [line]
    assert not own_cache.exists()


def test_the_smallest_ratio_counts_and_a_slow_one_ends_the_measurement(monkeypatch):
    """The clock of this test: float32 takes 2 s, bfloat16 1, 4, ... s."""
    monkeypatch.setattr(bfloat16, "SHAPES", ((8, 16, 16), (16, 16, 16), (16, 16, 8)))
    seconds = [2.0, 1.0] * bfloat16.REPEATS + [2.0, 4.0] * bfloat16.REPEATS
    readings = iter([x for second in seconds for x in (0.0, second)])
    monkeypatch.setattr(bfloat16.time, "perf_counter", lambda: next(readings))
    assert bfloat16.measure() == 0.5
    assert next(readings, None) is None  # the third product was not measured


def test_an_arm_processor_is_named_by_its_numbers(own_cache):
    host.PROCESSORS.write_text("Features\t: fp asimd bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
    assert bfloat16.processor() == "0x41 0xd4f bf16"


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
        ("mps", "bfloat16", 3.0, "float32"),
    ],
)
def test_the_speed_of_the_processor_decides(monkeypatch, tmp_path, device, choice, ratio, expected):
    monkeypatch.setattr(bfloat16, "speedup", lambda: ratio)
    assert precision_of(make_machine(device=device, precision=choice), tmp_path) == expected


def test_nodes_whose_processors_may_differ_compute_in_float32(monkeypatch, tmp_path):
    monkeypatch.setattr(bfloat16, "speedup", lambda: 3.0)
    assert precision_of(make_machine(precision="auto", torchrun=["--nnodes=2"]), tmp_path) == "float32"


def test_a_process_without_a_model_measures_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(bfloat16, "speedup", None)
    assert precision_of(without_model(make_machine(precision="auto")), tmp_path) == "float32"


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


def test_a_checkpoint_holds_its_precision(own_precision, tmp_path):
    module = torch.nn.Linear(2, 1)
    precision.use_precision("bfloat16")
    save_state(module, torch.optim.AdamW(module.parameters()), tmp_path, 3, [], "cpu")
    assert precision_of(make_machine(precision="float32"), tmp_path) == "bfloat16"


def test_a_gpu_before_ampere_computes_in_float16(own_precision):
    own_precision.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    precision.use_precision("bfloat16")
    assert precision.precision_name("cuda") == "float16"
