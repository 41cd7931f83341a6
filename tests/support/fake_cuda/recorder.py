"""Records what a GPU would do: kernels, waits of the host, mixes of devices, and the bytes of live tensors.

Shapes of fake tensors are real, and so are their types and devices; they have no values.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fake_cuda.compiler import as_few_kernels
from pipeline.modeling import fused, passes

ROOT = Path(__file__).parents[3]
CODE = tuple(f"{ROOT / name}/" for name in ("pipeline", "benchmarks"))
"""Where the code is whose lines are named."""
NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "is_same_size"}
"""Operations that allocate memory and do not write it."""
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"}
READ_BY_HOST = {
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "repeat_interleave",
    "bincount",
    "equal",
}
"""Operations whose result, or its size, the host must know."""
LEAST_MIXED = 6827
"""Rows from which Inductor sums rows and columns of 768 dimensions in the same kernel (5 * 2^20 numbers)."""
ROUND = 512
"""CUDA's allocator rounds the bytes of a tensor up to a multiple of this."""


class Place(NamedTuple):
    """An operation of the project's code."""

    what: str
    file: str
    """Relative to the project's root; `?` outside the project."""
    function: str
    line: int


class Recorder(TorchDispatchMode):
    """Records all operations that run within it. It can be entered several times."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        """By operation."""
        self.waits: Counter[Place] = Counter()
        """Blocking copies between host and device, and values that the host reads."""
        self.copies: Counter[str] = Counter()
        """Copies between host and device for which the host does not wait, by direction."""
        self.mixes: Counter[Place] = Counter()
        """Operations on tensors of the host (but single numbers) and of the device together."""
        self.products: dict[str, set[str]] = {}
        """Name of a watched weight -> types of the operands of the products that read it."""
        self.types: set[str] = set()
        """Of all tensors that kernels read or write."""
        self.live = 0
        """Bytes of the device's tensors, each memory counted once."""
        self.peak = 0
        self._paused = False
        self._sizes: dict[int, int] = {}
        self._watched: dict[int, str] = {}

    def launched(self, name: str, args: tuple[Any, ...], inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Called for each kernel, with its tensors on the device; for subclasses."""

    def hold(self, module: torch.nn.Module) -> None:
        """Counts parameters and gradients that exist already."""
        for parameter in module.parameters():
            self._count(parameter)
            if parameter.grad is not None:
                self._count(parameter.grad)

    def watch(self, name: str, weight: Tensor) -> None:
        """Records the products that read the memory of `weight`; a cast copy is another memory."""
        self._watched[_memory(weight)] = name

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        if func.namespace == "prim":  # queries such as the device of a tensor
            return func(*args, **kwargs)
        if func._can_decompose():  # in inference mode composite operations arrive undivided
            with self:
                return func.decompose(*args, **kwargs)
        name = func.overloadpacket.__name__
        inputs = _tensors((args, kwargs))
        on_device = [x for x in inputs if _is_on_device(x)]
        if name == "_local_scalar_dense" and on_device:
            self.waits[_place("reads a value")] += 1
            return 0.0 if on_device[0].dtype.is_floating_point else 0
        if name in READ_BY_HOST and on_device:
            self.waits[_place(f"{name} depends on values")] += 1
        out = func(*args, **kwargs)
        outputs = [x for x in _tensors(out) if _is_on_device(x)]
        for x in outputs:
            self._count(x)
        if name in ("_to_copy", "copy_"):
            source, target = (inputs[0], _tensors(out)[0]) if name == "_to_copy" else (inputs[1], inputs[0])
            if source.device.type != target.device.type:
                self._copied(source, target, bool(kwargs.get("non_blocking") or args[2:3] == (True,)))
                return out
        elif on_device and any(x.device.type == "cpu" and x.ndim for x in inputs):
            self.mixes[_place(name)] += 1
        if self._writes(func, name, on_device, outputs):
            self._launch(name, args, on_device, outputs)
            if name in PRODUCTS:
                for memory in {_memory(x) for x in on_device} & self._watched.keys():
                    types_read = {str(x.dtype).removeprefix("torch.") for x in on_device}
                    self.products.setdefault(self._watched[memory], set()).update(types_read)
        return out

    def __enter__(self) -> "Recorder":
        _active.append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _active.pop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Records no operation of the block."""
        was, self._paused = self._paused, True
        yield
        self._paused = was

    def record_fused(self, graph: Callable[..., Any], inputs: list[Any], rows: int) -> Any:
        """Runs a fused graph over so many rows.

        Its sums over the rows are a kernel of their own, as is each table's gradient. In a large chunk that kernel only
        adds partial sums (Inductor's mix-order reduction). The graph also returns inputs that its backward pass needs;
        they are not written.
        """
        read = [x for x in _tensors(inputs) if _is_on_device(x)]
        versions = [_version(x) for x in read]
        with self.paused():
            outputs = graph(*inputs)
        own = {_memory(x) for x in read}
        written = [x for x in _tensors(outputs) if _is_on_device(x) and _memory(x) not in own]
        for x in written:
            self._count(x)
        written += [x for x, version in zip(read, versions, strict=True) if _version(x) != version]
        of_rows = [x for x in read if x.ndim and len(x) == rows]
        of_chunk, sums, tables = [], [], []
        for x in written:
            (of_chunk if x.ndim and len(x) == rows else tables if x.ndim > 1 else sums).append(x)
        self._launch("fused", (), read, of_chunk)
        if sums:
            again = of_rows if rows < LEAST_MIXED else []
            self._launch("fused sums", (), again, sums)
        for table in tables:
            self._launch("embedding_dense_backward", (), of_rows, [table])
        return outputs

    def _launch(self, name: str, args: tuple[Any, ...], inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.kernels[name] += 1
        self.types.update(str(x.dtype).removeprefix("torch.") for x in (*inputs, *outputs))
        self.launched(name, args, inputs, outputs)

    def _copied(self, source: Tensor, target: Tensor, non_blocking: bool) -> None:
        direction = f"{source.device.type} to {target.device.type}"
        of_host = source if _is_on_device(target) else target
        if non_blocking and getattr(of_host, "pinned_by_fake", False):  # the host waits for other memory all the same
            self.copies[direction] += 1
        else:
            self.waits[_place(f"copies {direction}")] += 1

    def _writes(self, func: Any, name: str, on_device: list[Tensor], outputs: list[Tensor]) -> bool:
        """Whether the operation writes the device's memory; views and allocations do not."""
        if name in NO_KERNEL or not (outputs or on_device) or (outputs and not any(x.numel() for x in outputs)):
            return False
        if func._schema.is_mutable:
            return bool(on_device)
        return not {_memory(x) for x in outputs} <= {_memory(x) for x in on_device}

    def _count(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        memory = storage._cdata
        if memory in self._sizes:
            return
        size = -(-storage.nbytes() // ROUND) * ROUND
        self._sizes[memory] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, memory).atexit = False

    def _freed(self, memory: int) -> None:
        self.live -= self._sizes.pop(memory)


_active: list[Recorder] = []
"""Those that are entered, the innermost last."""


def _fused(graph: Callable[..., Any], inputs: list[Any], rows: int) -> Any:
    return _active[-1].record_fused(graph, inputs, rows) if _active else graph(*inputs)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """As pipeline/modeling/fused.py `compiled`. Tracing is not recorded."""
    traced = as_few_kernels(_fused, function)

    def call(*arguments: Any) -> Any:
        with _active[-1].paused() if _active else nullcontext():
            return traced(*arguments)

    return call


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _is_on_device(x: Tensor) -> bool:
    return x.device.type != "cpu"


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _version(x: Tensor) -> int:
    """Returns PyTorch's count of changes in place; inference mode counts none."""
    return 0 if x.is_inference() else x._version


def _place(what: str) -> Place:
    """Returns the innermost line of the project's code that runs."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(CODE):
            file = str(Path(code.co_filename).relative_to(ROOT))
            return Place(what, file, code.co_qualname.partition(".<locals>.<")[0], frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return Place(what, "?", "?", 0)


def _pinned(x: Tensor, *arguments: Any) -> Tensor:
    x.pinned_by_fake = True  # type: ignore[attr-defined]
    return x


def _to_host(cpu: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns `Tensor.cpu` for fake tensors: the copy is recorded, and its values are zeros."""

    def copied(x: Tensor) -> Tensor:
        if not isinstance(x, FakeTensor):
            return cpu(x)
        shape = cpu(x)
        with unset_fake_temporarily():
            return torch.zeros(shape.shape, dtype=shape.dtype)

    return copied


def _numpy(numpy: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Returns `Tensor.numpy`: of a fake tensor zeros; a real one is not shown to the mode, which would copy it."""

    def called(x: Tensor) -> Any:
        with unset_fake_temporarily():
            return numpy(torch.zeros(x.shape, dtype=x.dtype) if isinstance(x, FakeTensor) else x)

    return called


class _Event:
    """An event of a device whose work is done at once."""

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


class _OneThread(ThreadPoolExecutor):
    """Works in the caller's thread, where the modes are."""

    def __init__(self, threads: int, **ignored: Any) -> None:
        super().__init__(threads)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


FREE = 78 << 30
"""Free bytes of the fake device."""


@contextmanager
def fake_device(mode: FakeTensorMode | None = None) -> Iterator[FakeTensorMode]:
    """Runs the block with the fake device, an H100. Tensors of several blocks go together if these have one `mode`."""
    constants = {
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_name": "NVIDIA H100 80GB HBM3",
        "is_bf16_supported": True,
        "mem_get_info": (FREE, FREE),
        "memory_allocated": 0,
        "memory_reserved": 0,
    }
    cpu = torch.Tensor.cpu
    with ExitStack() as stack:
        for name, value in constants.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, value=value, **__: value))
        patches: list[tuple[Any, str, Any]] = [
            (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
            (torch.Tensor, "pin_memory", _pinned),
            (torch.Tensor, "cpu", _to_host(cpu)),
            (torch.Tensor, "numpy", _numpy(torch.Tensor.numpy)),
            (torch.cuda, "Event", _Event),
            (passes, "ThreadPoolExecutor", _OneThread),
            (fused, "has_compiler", lambda: True),
            (fused, "compiled", _compiled),
            (FakeTensor, "tolist", lambda x: x.cpu().tolist()),
        ]
        for where, name, value in patches:
            stack.enter_context(mock.patch.object(where, name, value))
        # The backward pass runs in this thread, where the modes are.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        yield stack.enter_context(mode or FakeTensorMode(allow_non_fake_inputs=True))
