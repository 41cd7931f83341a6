"""Passes over many rows: each row gets its own result, and on a GPU host and device take turns."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.modeling import passes
from pipeline.modeling.passes import fill, one_ahead


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Results "on a GPU" arrive when their event is waited for. Returns what happens, in order."""
    happened: list[str] = []

    def to_host(result: torch.Tensor):
        name = f"{int(result[0])}"
        happened.append(f"start {name}")

        def read() -> np.ndarray:
            happened.append(f"read {name}")
            return result.numpy()

        return read

    monkeypatch.setattr(passes, "to_host", to_host)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    return happened


def filled(length_N: np.ndarray, device: str) -> tuple[np.ndarray, list[int]]:
    results_N, finished = np.zeros(len(length_N)), []
    fill(results_N, length_N, 10, lambda row_B: row_B, torch.from_numpy, device, finished.append)
    return results_N, finished


def test_a_result_is_read_when_the_next_chunk_is_at_work(gpu: list[str]) -> None:
    length_N = np.array([7, 3, 9, 5, 8])
    results_N, finished = filled(length_N, "cuda")
    assert results_N.tolist() == [0, 1, 2, 3, 4]
    assert sum(finished) == 5
    chunks = [word.split()[1] for word in gpu if word.startswith("start")]
    assert len(chunks) == len(finished) >= 3
    expected = [f"start {chunks[0]}"]
    for one, following in zip(chunks, [*chunks[1:], None], strict=True):
        expected += [*([f"start {following}"] if following else []), f"read {one}"]
    assert gpu == expected


@pytest.mark.parametrize("lengths", [[], [4], [7, 3, 9, 5, 8]])
def test_a_processor_reads_each_result_at_once(lengths: list[int]) -> None:
    results_N, finished = filled(np.array(lengths, np.int64), "cpu")
    assert results_N.tolist() == [*range(len(lengths))]
    assert sum(finished) == len(lengths)


def test_a_thread_prepares_one_item_ahead(gpu: list[str]) -> None:
    """And no more: each packed chunk takes memory of the GPU."""
    started, threads = [threading.Event() for _ in range(4)], set()

    def prepare(place: int) -> int:
        threads.add(threading.get_ident())
        started[place].set()
        return 10 * place

    with one_ahead(prepare, range(4), "cuda") as items:
        assert next(items) == 0
        assert started[1].wait(10)
        assert not started[2].wait(0.05)
        assert list(items) == [10, 20, 30]
    assert threads != {threading.get_ident()}


def test_an_error_of_the_thread_is_raised(gpu: list[str]) -> None:
    def fail(place: int) -> SimpleNamespace:
        raise ValueError("a bad row")

    with pytest.raises(ValueError, match="a bad row"), one_ahead(fail, range(3), "cuda") as items:
        next(items)
