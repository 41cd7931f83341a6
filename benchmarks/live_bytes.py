"""The most bytes that the tensors and arrays of a block hold at once, counted by allocation.

The kernel's figure of a process (peak.py) depends on the allocator too: on pages that it keeps, on fragments, and on
freed memory that it uses again. Allocations depend on the program alone, so that two runs count the same bytes.

- Tensors: a mode that sees each operation of PyTorch, the backward pass too. It adds the memory of a result when the
  operation returns, and subtracts it when that memory is freed. What an operation allocates and frees itself is left
  out. PyTorch's profiler counts the same bytes (within 0.2 % of a step), but it knows no arrays.
- Arrays: NumPy reports them to tracemalloc. Python's other objects are part of this figure (about 1 MiB).
"""

import tracemalloc
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts what is allocated within it; memory that existed before, such as weights, does not count.

    A tensor that shares the memory of an array is counted as the array. Only one can be entered at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        """Largest sum of the bytes of tensors and arrays."""
        self.tensors = 0
        """Bytes of live tensors, each memory counted once."""
        self._sizes: dict[int, int] = {}

    def __enter__(self) -> "LiveBytes":
        super().__enter__()
        torch.empty(0)  # the first operation in a mode imports 800 modules
        tracemalloc.start()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._update_peak()
        tracemalloc.stop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {_memory(x) for x in _tensors((args, kwargs))}
        for x in _tensors(result):
            if _memory(x) not in known:  # a view, or a result that is written into an argument, has no own memory
                self._count(x)
        return result

    def _update_peak(self) -> None:
        """Call it before `tensors` changes: the arrays' own peak since the last call counts with these tensors."""
        self.peak = max(self.peak, self.tensors + tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()

    def _count(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        memory = _memory(x)
        if memory in self._sizes:
            return
        self._update_peak()
        self._sizes[memory] = storage.nbytes()
        self.tensors += storage.nbytes()
        weakref.finalize(storage, self._freed, memory).atexit = False

    def _freed(self, memory: int) -> None:
        self._update_peak()
        self.tensors -= self._sizes.pop(memory)


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)
