"""The measured speed of this machine."""

import json
from pathlib import Path

import pytest

from pipeline.training import speed as module
from pipeline.training.speed import Layer, Speed, speed

SMALL = Layer(hidden_size=16, intermediate_size=32, heads=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cocondenser" / "speed.json"


def test_two_processes_are_measured_side_by_side(cache: Path) -> None:
    measured = speed(SMALL, "cpu", "float32", 2)
    assert measured is not None
    assert 0 < measured.start < measured.training_start
    assert measured.forward > measured.training > 0
    assert sorted(json.loads(cache.read_text()).values()) == sorted(measured)


def test_a_processor_and_a_shape_are_measured_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(arguments: list[str], processes: int) -> Speed:
        asked.append((arguments, processes))
        return Speed(1.0, 2.0, 30.0, 10.0)

    monkeypatch.setattr(module, "_in_processes", measured)
    for _ in range(2):
        assert speed(SMALL, "cpu", "bfloat16", 2) == Speed(1.0, 2.0, 30.0, 10.0)
    assert asked == [(["cpu", "bfloat16", "16", "32", "2"], 2)]
    speed(SMALL, "cpu", "float32", 2)
    speed(SMALL._replace(heads=4), "cpu", "float32", 2)
    assert len(asked) == 3
    assert len(json.loads(cache.read_text())) == 12
    # One process per GPU; another GPU may be in the machine tomorrow.
    assert speed(SMALL, "cuda", "bfloat16", 8) == Speed(1.0, 2.0, 240.0, 80.0)
    assert asked[-1] == (["cuda", "bfloat16", "16", "32", "2"], 1)
    assert len(json.loads(cache.read_text())) == 12


def test_a_failed_measurement_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(module, "python", lambda *arguments: ["false"])
    assert speed(SMALL, "cpu", "float32", 1) is None
    assert "cannot be measured (its process ended early)" in caplog.text
    assert not cache.exists()
