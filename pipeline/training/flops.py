"""Floating-point operations of an update, and those that the machine can do: together model FLOP utilisation (MFU).

Counted: every matrix product, once forward and twice backward; a multiplication and an addition count as two. Not
counted: the second forward pass of a gradient cache, norms and activations.
"""

import re
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.modeling.architectures.registry import of_config
from pipeline.modeling.model_files.model_config import inner_size
from pipeline.modeling.packing import Chunk, Rows
from pipeline.runtime.precision import low_precision

if TYPE_CHECKING:
    import torch

BACKWARD = 3
"""Products of a forward and backward pass, relative to a forward pass."""
BF16_PEAKS = {
    "GB300": 2500e12,
    "GB200": 2500e12,
    "B300": 2250e12,
    "B200": 2250e12,
    "GH200": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H800 PCIe": 756e12,
    "H800": 989e12,
    "H20": 148e12,
    "A100": 312e12,
    "A800": 312e12,
    "A40": 150e12,
    "A30": 165e12,
    "A10G": 70e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX A6000": 155e12,
    "RTX 6000 Ada": 364e12,
    "RTX 5090": 209e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "MI300X": 1307e12,
}
"""Dense bfloat16 operations per second, accumulated in float32, by words of the device's name (the first that it has).
From the data sheets."""


def layer(config: Any, wanted: Rows, every: Rows, window: int | None = None) -> float:
    """Returns the operations of one transformer layer at the rows `wanted`, forward.

    `window`: the greatest distance of a key. Rows near a text's ends are counted with as many keys as others.
    """
    dimensions, inner = config.hidden_size, inner_size(config)
    by_row = 2 * dimensions * dimensions + of_config(config).inner_maps * dimensions * inner
    scores = wanted.scores if window is None else min(wanted.scores, wanted.size * (2 * window + 1))
    return 2.0 * (wanted.size * by_row + every.size * 2 * dimensions * dimensions + scores * 2 * dimensions)


def encoder(config: Any, wanted: Rows, every: Rows) -> float:
    """Returns the operations of all layers, the last one at the rows `wanted`; forward."""
    *windows, last = of_config(config).windows(config)
    return sum(layer(config, every, every, window) for window in windows) + layer(config, wanted, every, last)


def backbone(config: Any, chunk: Chunk, masked: bool) -> float:
    """Returns the operations of all layers, the last one at the CLS and, if `masked`, the masked tokens; forward."""
    total = encoder(config, chunk.cls, chunk.every)
    if masked:  # the keys and values are those already counted for the CLS tokens
        *_, window = of_config(config).windows(config)
        total += layer(config, chunk.masked, chunk.every, window)
        total -= 2.0 * chunk.every.size * 2 * config.hidden_size**2
    return total


def predictions(config: Any, rows: int) -> float:
    """Returns the operations of the prediction head at `rows` rows, forward."""
    return 2.0 * rows * config.hidden_size * (config.hidden_size + config.vocab_size)


def data_sheet(name: str) -> float | None:
    """Returns the peak of the GPU of that name; None if it is not in the table, a part of a GPU (MIG), or slower."""
    if re.search(r"\b(MIG|Laptop)\b", name):
        return None
    return next((value for part, value in BF16_PEAKS.items() if re.search(rf"\b{part}\b", name)), None)


def peak(device: str) -> float | None:
    """Returns the peak operations per second of this rank's device; None on MPS and for GPUs that are not in the table.

    For a CPU it is the fastest of a few matrix products, on the number of threads that torch uses here.
    """
    import torch

    if device == "cuda":
        return data_sheet(torch.cuda.get_device_name())
    if device == "mps":
        return None
    return _measured_peak(torch.get_num_threads(), low_precision(device) or torch.float32)


@cache
def _measured_peak(threads: int, dtype: "torch.dtype") -> float:
    """Returns the peak of this process's CPU threads. It is measured once: a process may train several models."""
    import torch

    side = 1024
    x, y = torch.randn(side, side, dtype=dtype), torch.randn(side, side, dtype=dtype)
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        torch.mm(x, y)
        best = min(best, time.perf_counter() - started)
    return 2.0 * side**3 / best
