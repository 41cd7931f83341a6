"""Exact search on the device, and the time that MS MARCO's training questions would take.

Shapes: Q questions, N vectors, D dimensions.
"""

import time
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.clock import begin, free, most, wait
from benchmarks.gpu.inputs import Size
from pipeline.dense.exact import exact_top_k
from pipeline.dense.exact_gpu import GpuVectors, load, room_for_vectors
from pipeline.training.memory import free_bytes

LISTS = (210, 1000)
"""Lengths of the lists: of training questions, and of test questions."""
PASSAGES, QUESTIONS = 8_841_823, 502_939
"""MS MARCO's passages and training questions (coCondenser, section 4)."""
TURNS = 3
COMPARED = 4
"""Questions that are searched on the processor too, which must give the same bytes."""


def drawn(number: int, dimensions: int, device: str, seed: int) -> np.ndarray:
    """Returns random vectors that are exact in float16, float32 [N, D]."""
    generator = torch.Generator(device).manual_seed(seed)
    vector_ND = torch.randn(number, dimensions, device=device, generator=generator)
    return vector_ND.half().float().cpu().numpy()


def measure(size: Size, device: str) -> dict[str, Any]:
    """Returns the figures of each list's length.

    Raises RuntimeError if a list differs from the processor's.
    """
    vector_ND = drawn(size.searched, size.dimensions, device, 0)
    question_QD = drawn(size.queries, size.dimensions, device, 1)
    longest = float(np.sqrt((vector_ND * vector_ND).sum(1, dtype=np.float64).max()))
    free(device)
    half = size.searched // 2
    out: dict[str, Any] = {}
    few = loaded(vector_ND[:half], device)[0]
    seconds_few = {k: seconds(question_QD, vector_ND[:half], k, longest, few, device)[0] for k in LISTS}
    del few
    free(device)
    vectors, loading = loaded(vector_ND, device)
    for k in LISTS:
        spent, peak = seconds(question_QD, vector_ND, k, longest, vectors, device)
        out[f"k={k}"] = {
            "ms": 1000 * spent,
            "questions_per_second": size.queries / spent,
            "peak_GiB": peak,
            "load_ms": 1000 * loading,
            "marco_minutes": marco_seconds(seconds_few[k], spent, loading, size) / 60,
        }
        check(question_QD[:COMPARED], vector_ND, k, longest, vectors)
    return out


def loaded(vector_ND: np.ndarray, device: str) -> tuple[GpuVectors | None, float]:
    """Copies vectors to the device; returns them (None: they do not fit), and the seconds that it took."""
    started = time.perf_counter()
    vectors = load(vector_ND, device, room_for_vectors(free_bytes(device)))
    wait(device)
    return vectors, time.perf_counter() - started


def seconds(
    question_QD: np.ndarray, vector_ND: np.ndarray, k: int, longest: float, vectors: GpuVectors | None, device: str
) -> tuple[float, float | None]:
    """Returns (seconds of the median search, peak in GiB)."""
    begin(device)
    spent = []
    for turn in range(TURNS + 1):
        started = time.perf_counter()
        exact_top_k(question_QD, vector_ND, k, longest, on_gpu=vectors)
        wait(device)
        if turn:  # the first one warms up
            spent.append(time.perf_counter() - started)
    peak = most(device, 0)
    return median(spent), None if peak is None else peak / 2**30


def marco_seconds(few: float, many: float, loading: float, size: Size) -> float:
    """Extrapolates to all of MS MARCO's training questions. `few`, `many`: seconds for N / 2 and N vectors.

    A search takes a time for each vector (product, candidates) and a time for each list (rescoring).
    """
    by_vector = max(many - few, 0.0) / (size.searched / 2)
    by_list = max(many - by_vector * size.searched, 0.0)
    batches = QUESTIONS / size.queries
    return batches * (by_list + by_vector * PASSAGES) + loading * PASSAGES / size.searched


def check(question_QD: np.ndarray, vector_ND: np.ndarray, k: int, longest: float, vectors: GpuVectors | None) -> None:
    """Raises RuntimeError if the device's lists differ from the processor's."""
    ours = exact_top_k(question_QD, vector_ND, k, longest, on_gpu=vectors)
    expected = exact_top_k(question_QD, vector_ND, k, longest)
    if not all(np.array_equal(one, other) for one, other in zip(ours, expected, strict=True)):
        raise RuntimeError(f"k = {k}: the lists differ from those of the processor")
