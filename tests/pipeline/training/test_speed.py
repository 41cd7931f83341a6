"""The measured speed of this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.training import speed as module
from pipeline.training.speed import Layer, Speed, speed

SMALL = Layer(hidden_size=16, intermediate_size=32, heads=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    speed.cache_clear()
    yield tmp_path / "cocondenser" / "speed.json"
    speed.cache_clear()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int]]:
    """The arguments of measurements."""
    result: list[tuple[list[str], int]] = []

    def measured(arguments: list[str], processes: int) -> Speed:
        result.append((arguments, processes))
        return Speed(1.0, 2.0, 30.0, 10.0)

    monkeypatch.setattr(module, "_in_processes", measured)
    return result


def test_two_processes_are_measured_side_by_side(cache: Path) -> None:
    measured = speed(SMALL, "cpu", "float32", 2)
    assert measured is not None
    assert 0 < measured.start < measured.training_start
    assert measured.forward > measured.training > 0
    assert sorted(json.loads(cache.read_text()).values()) == sorted(measured)


def test_a_processor_and_a_shape_are_measured_once(cache: Path, calls: list[tuple[list[str], int]]) -> None:
    assert speed(SMALL, "cpu", "bfloat16", 2) == Speed(1.0, 2.0, 30.0, 10.0)
    speed.cache_clear()  # as in another process
    assert speed(SMALL, "cpu", "bfloat16", 2) == Speed(1.0, 2.0, 30.0, 10.0)
    assert calls == [(["cpu", "bfloat16", "16", "32", "2"], 2)]
    speed(SMALL, "cpu", "float32", 2)
    speed(SMALL._replace(heads=4), "cpu", "float32", 2)
    assert len(calls) == 3
    assert len(json.loads(cache.read_text())) == 12


def test_a_gpu_is_measured_once_in_a_process(cache: Path, calls: list[tuple[list[str], int]]) -> None:
    for _ in range(2):
        assert speed(SMALL, "cuda", "bfloat16", 8) == Speed(1.0, 2.0, 240.0, 80.0)
    assert calls == [(["cuda", "bfloat16", "16", "32", "2"], 1)]
    assert not cache.exists()  # another GPU may be in the machine tomorrow


def test_a_failed_measurement_is_no_error_and_not_repeated(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = []
    monkeypatch.setattr(module, "python", lambda *arguments: started.append(arguments) or ["false"])
    for _ in range(2):
        assert speed(SMALL, "cpu", "float32", 1) is None
    assert len(started) == 1
    assert caplog.text.count("cannot be measured (its process ended early)") == 1
    assert not cache.exists()
