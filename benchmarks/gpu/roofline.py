"""Simulated times of kernels: a roofline for an H100 SXM. No figure is measured with this program on a GPU.

A kernel takes the time of its operations or of its bytes, whichever is longer, and at least LAUNCH.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from fake_cuda.recorder import Recorder
from torch import Tensor

PEAK = 989e12
"""bfloat16 operations per second, as pipeline/training/flops.py has it."""
BANDWIDTH = 2.7e12
"""Bytes per second that a simple kernel reads and writes; the data sheet has 3.35e12."""
LAUNCH = 2e-6
"""Seconds of the smallest kernel."""
HOST = 12e-6
"""Seconds of the host per kernel, launched by PyTorch without a graph."""
PRODUCT_RATES = ((128, 200e12), (512, 400e12), (1024, 600e12))
"""(smallest dimension below, bfloat16 operations per second); above all: LARGE_PRODUCT."""
LARGE_PRODUCT = 680e12
MISALIGNED = 300e12
"""Operations per second of a bfloat16 product with rows that are no multiple of 16 bytes."""
FLOAT32_PRODUCT = 50e12
HOST_COMPILED = 80e-6
"""Seconds of the host per call of a compiled function, forward or backward: guards and autograd (measured on a CPU)."""
ATTENTION, ATTENTION_BACKWARD = 120e12, 90e12
"""Operations per second of flash-attention on sequences of about 100 tokens."""
ATTENTION_REPEATS = 2.5
"""Operations of attention backward, relative to forward: it computes the scores again."""
ATOMIC = 60e-6
"""Seconds that a kernel with atomic additions takes in addition."""
ADAM_BYTES = 7 / 4
"""Bytes that AdamW reads and writes, relative to the four tensors that it reads: it writes three of them."""
TOP_K_READS = 5
"""A radix selection reads float32 numbers once for each byte, and once to gather."""
ASSUMPTIONS: Mapping[str, Any] = {
    "peak": PEAK,
    "bandwidth": BANDWIDTH,
    "launch_seconds": LAUNCH,
    "host_seconds_per_kernel": HOST,
    "host_seconds_per_compiled_call": HOST_COMPILED,
    "bfloat16_products": {"largest": LARGE_PRODUCT, "below": dict(PRODUCT_RATES), "misaligned": MISALIGNED},
    "float32_products": FLOAT32_PRODUCT,
    "attention": {"forward": ATTENTION, "backward": ATTENTION_BACKWARD},
}
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
READS = {"index", "index_select", "gather", "embedding"}
"""Operations that read only what they return."""


class Roofline(Recorder):
    """Records what runs within it on the fake device, and adds up the simulated seconds of its kernels."""

    def __init__(self, mean_length: float) -> None:
        """`mean_length`: keys that a query reads, on average over the tokens."""
        super().__init__()
        self.mean_length = mean_length
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """By operation."""

    def clear(self) -> None:
        """Forgets the kernels so far; the peak is that of what follows."""
        self.seconds.clear()
        self.kernels.clear()
        self.peak = self.live

    def launched(self, name: str, args: tuple[Any, ...], inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.seconds[name] += max(self._duration(name, args, inputs, outputs), LAUNCH)

    def _duration(self, name: str, args: tuple[Any, ...], inputs: list[Tensor], outputs: list[Tensor]) -> float:
        moved = moved_bytes(name, inputs, outputs) / BANDWIDTH
        if name in PRODUCTS:
            return max(product_seconds(name, inputs), moved)
        if "flash_attention" in name or "dot_product" in name or "varlen_attn" in name:
            backward = "backward" in name
            query, key = inputs[1:3] if backward else inputs[:2]
            operations = attention_operations(query, key, self.mean_length) * (ATTENTION_REPEATS if backward else 1.0)
            return max(operations / (ATTENTION_BACKWARD if backward else ATTENTION), moved)
        accumulates = "index_put" in name and len(args) > 3 and bool(args[3])
        return moved + (ATOMIC if accumulates or name == "embedding_dense_backward" else 0.0)


def size(x: Tensor) -> int:
    """Returns the bytes of a tensor; an expanded dimension is read once."""
    number = 1
    for length, stride in zip(x.shape, x.stride(), strict=True):
        number *= length if stride else 1
    return number * x.element_size()


def moved_bytes(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> float:
    """Returns the bytes that a kernel reads and writes."""
    read, written = sum(map(size, inputs)), sum(map(size, outputs))
    if name.startswith("_fused_adamw"):
        return ADAM_BYTES * read
    if name in READS:
        return 2 * written
    if "index_put" in name:
        return 3 * size(inputs[-1]) + (0 if name.endswith("_") else 2 * size(inputs[0]))
    if name in ("zero_", "fill_", "bernoulli_"):  # they only write
        return read
    if name == "_log_softmax":
        return 2 * read + written
    if name == "topk":
        return TOP_K_READS * read
    return read + written


def product_seconds(name: str, inputs: list[Tensor]) -> float:
    """Returns the seconds of a matrix product, by its smallest dimension, its type and its alignment."""
    first, second = inputs[1:3] if name in ("addmm", "baddbmm") else inputs[:2]
    rows, inner, columns = first.numel() // first.shape[-1], first.shape[-1], second.shape[-1]
    operations = 2.0 * rows * inner * columns
    if first.dtype in (torch.float32, torch.float64):  # an H100's tensor cores multiply float64 as fast
        return operations / FLOAT32_PRODUCT
    aligned = columns % 8 == 0 and all(max(x.stride()) % 8 == 0 for x in (first, second))
    if not aligned:
        return operations / MISALIGNED
    least = min(rows, inner, columns)
    return operations / next((rate for bound, rate in PRODUCT_RATES if least < bound), LARGE_PRODUCT)


def attention_operations(query: Tensor, key: Tensor, mean_length: float) -> float:
    """Returns the operations of attention, forward. Packed queries [R, H, D] read `mean_length` keys each."""
    keys = key.shape[2] if query.ndim == 4 else mean_length
    return 4.0 * query.numel() * keys
