"""The layout of packed sequences."""

import numpy as np
import pytest
import torch

from pipeline.modeling import packing
from pipeline.modeling.packing import has_kernel, packed_rows, to_device, upload

LENGTHS = np.array([3, 5, 5, 5, 9])


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_arrays_are_copied_to_the_device(device):
    """`meta` is a device without data."""
    assert upload(np.arange(3, dtype=np.float32), device).device.type == device
    assert to_device(np.arange(3, dtype=np.int32), device).device.type == device
    every = packed_rows(LENGTHS, LENGTHS, None, device)
    assert every.edges.device.type == device


def test_padding_counts_the_unused_results_of_attention():
    at_R = np.array([0, 3, 4, 8, 13, 18])
    assert packed_rows(LENGTHS, np.array([1, 2, 1, 1, 1]), at_R, "cpu").padding == 2
    assert packed_rows(LENGTHS, LENGTHS, None, "cpu").padding == 0


@pytest.mark.parametrize(
    ("most", "groups"),
    [
        (0, ((1, 3), (3, 5), (1, 9))),
        (16, ((4, 5), (1, 9))),  # 16 scores more: 5 x 5 instead of 3 x 3
        (240, ((5, 9),)),  # 4 times 9 x 9 instead of 5 x 5: 224 more
    ],
)
def test_almost_equal_lengths_share_a_call_if_that_adds_few_scores(monkeypatch, most, groups):
    monkeypatch.setattr(packing, "PADDED_SCORES", most)
    every = packed_rows(LENGTHS, LENGTHS, None, "cpu", bucket=True)
    assert every.groups == groups
    assert every.padding == sum(n * length for n, length in groups) - LENGTHS.sum()
    for device, bucket in (("cpu", False), ("meta", True)):
        assert packed_rows(LENGTHS, LENGTHS, None, device, bucket).groups == ((1, 3), (3, 5), (1, 9))


def test_a_gpu_before_ampere_does_not_use_the_kernel(monkeypatch):
    for capability, has in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        assert has_kernel("cuda") == has
    assert not has_kernel("cpu")
