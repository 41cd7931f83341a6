"""Bytes of tensors and arrays, against sizes that are known, and against PyTorch's profiler."""

import numpy as np
import pytest
import torch

from benchmarks.live_bytes import LiveBytes

MIB = 1 << 20
PYTHON = MIB // 8
"""Python's own objects."""


def test_the_peak_is_that_of_tensors_and_arrays_together():
    weight = torch.ones(MIB)  # exists before
    with LiveBytes() as live:
        tensor = weight + 1  # 4 MiB
        array = np.ones(2 * MIB, np.uint8)
        del tensor
        other = weight[:10] + array[:10].sum()
    assert live.peak == pytest.approx(6 * MIB, abs=PYTHON)
    assert live.tensors == other.nbytes


def test_arrays_between_two_operations_count():
    with LiveBytes() as live:
        tensor = torch.ones(MIB // 4)
        np.ones(5 * MIB, np.uint8)  # freed at once
        del tensor
    assert live.peak == pytest.approx(6 * MIB, abs=PYTHON)


def test_shared_memory_counts_once():
    with LiveBytes() as live:
        tensor = torch.from_numpy(np.ones(MIB, np.float32))
        view = tensor.view(1024, 1024)[1:]
        view.add_(1)
        torch.mul(view, 2, out=view)
    assert live.tensors == 0
    assert live.peak == pytest.approx(4 * MIB, abs=PYTHON)


def test_a_training_step_counts_what_the_profiler_counts():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)), torch.nn.GELU())
    x = torch.randn(2000, 256)

    def step() -> None:
        layers.zero_grad()
        (layers(x) ** 2).mean().backward()

    peaks = []
    for _ in range(2):
        with LiveBytes() as live:
            step()
        peaks.append(live.peak)
        layers.zero_grad()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    assert peaks[0] == pytest.approx(np.cumsum(changes).max(), rel=0.02)
    assert peaks[0] == pytest.approx(peaks[1], abs=PYTHON)
