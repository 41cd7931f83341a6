"""An update's gradients: backward passes that add to them, and their sum over the ranks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pipeline.runtime import ranks

BUCKET = 25 << 20
"""Bytes of gradients that GPUs sum at a time: smaller messages waste bandwidth, larger ones start later (Li et al.
2020, PyTorch Distributed, section 3.2.3)."""


def gradient_buffer(parameters: Sequence[nn.Parameter], others: int, device: str) -> Tensor:
    """Gives each parameter a part of one buffer of zeros as its gradient; returns it, with `others` further numbers."""
    sizes = [parameter.numel() for parameter in parameters]
    buffer = torch.zeros(sum(sizes) + others, device=device)
    for parameter, part in zip(parameters, buffer[: sum(sizes)].split(sizes), strict=True):
        parameter.grad = part.view_as(parameter)
    return buffer


class GradientSum:
    """Sums an update's gradients over the ranks.

    With buckets, gradients that the update's last backward pass has computed are summed while it computes the others.
    Buckets go from the last parameter to the first, as a backward pass does, in the same order on all ranks.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], buffer: Tensor, bucket: int | None) -> None:
        """`buffer`: the gradients of the parameters in their order, then other figures to sum.

        `bucket`: bytes from which on a bucket is full; None: all is summed at once, after the last pass.
        """
        buckets = [] if bucket is None or ranks.world() == 1 else _buckets(parameters, bucket)
        self._bucket_of: dict[Tensor, int] = {p: number for number, some in enumerate(buckets) for p in some}
        sizes = [sum(parameter.numel() for parameter in some) for some in buckets]
        *gradients, figures = buffer.split([*reversed(sizes), buffer.numel() - sum(sizes)])
        self._parts = [*reversed(gradients), figures]
        self._waits: list[ranks.Wait] = []

    @property
    def has_buckets(self) -> bool:
        return bool(self._bucket_of)

    @contextmanager
    def last_pass(self, output: Tensor) -> Iterator[None]:
        """In the block, the backward pass of `output`, starts the sum of each bucket whose gradients are complete."""
        computed = _parameters(output) & self._bucket_of.keys()
        left = [0] * (len(self._parts) - 1)
        for parameter in computed:
            left[self._bucket_of[parameter]] += 1

        def start_complete() -> None:
            while len(self._waits) < len(left) and not left[len(self._waits)]:
                self._start_next()

        def count(parameter: Tensor) -> None:
            left[self._bucket_of[parameter]] -= 1
            start_complete()

        start_complete()
        hooks = [parameter.register_post_accumulate_grad_hook(count) for parameter in computed]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def finish(self) -> None:
        """Sums what is left. Afterwards every rank has the same bytes."""
        while len(self._waits) < len(self._parts):
            self._start_next()
        for wait in self._waits:
            wait()
        self._waits = []

    def _start_next(self) -> None:
        self._waits.append(ranks.start_sum(self._parts[len(self._waits)]))


_sum: GradientSum | None = None


def use_gradient_sum(gradient_sum: GradientSum | None) -> None:
    """Sets what sums the gradients of this process's training, so that its last backward passes can start it."""
    global _sum
    _sum = gradient_sum


def add_gradients(module: nn.Module, output: Tensor, gradient: Tensor | None = None, *, last: bool) -> None:
    """Adds the gradients of `output` to those of the module's parameters, as output.backward(gradient) does.

    On a GPU all are added together, in a few kernels; PyTorch needs one for each parameter. `last`: no other gradient
    of this update follows.
    """
    if last and _sum is not None and _sum.has_buckets:
        with _sum.last_pass(output):
            output.backward(gradient)
        return
    if not output.is_cuda:
        output.backward(gradient)
        return
    totals = [(parameter, parameter.grad) for parameter in module.parameters() if parameter.grad is not None]
    for parameter, _ in totals:
        parameter.grad = None
    output.backward(gradient)
    pairs = [(total, parameter.grad) for parameter, total in totals if parameter.grad is not None]
    if pairs:
        torch._foreach_add_([total for total, _ in pairs], [added for _, added in pairs])
    for parameter, total in totals:
        parameter.grad = total


def _buckets(parameters: Sequence[nn.Parameter], size: int) -> list[list[nn.Parameter]]:
    """Returns the parameters from the last to the first, in lists of at least `size` bytes, but for the last list."""
    buckets: list[list[nn.Parameter]] = [[]]
    for parameter in reversed(parameters):
        if sum(p.nbytes for p in buckets[-1]) >= size:
            buckets.append([])
        buckets[-1].append(parameter)
    return buckets


def _parameters(output: Tensor) -> set[Tensor]:
    """Returns the tensors to whose gradients output.backward() adds."""
    assert output.grad_fn is not None
    nodes = {output.grad_fn}
    left = [output.grad_fn]
    while left:
        for node, _ in left.pop().next_functions:
            if node is not None and node not in nodes:
                nodes.add(node)
                left.append(node)
    return {node.variable for node in nodes if hasattr(node, "variable")}
