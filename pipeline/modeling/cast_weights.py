"""Copies of weights in the type of the products, cast once per update."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Copy:
    sources: list["weakref.ref[Tensor]"]
    """The parameters."""
    versions: list[int]
    """PyTorch's count of each parameter's changes when it was copied; changes in place."""
    parts: Sequence[Tensor]
    """Each parameter's rows of `joined`."""
    joined: Tensor


_copies: dict[tuple[object, ...], _Copy] = {}


def cast(parameters: Sequence[Tensor], dtype: torch.dtype, rows: int | None = None, fill: float = 0.0) -> Tensor:
    """Returns the parameters, joined along the first dimension and cast; without gradient.

    `rows`: length of the result's first dimension (None: of all parameters); further rows are `fill`. A copy is written
    again when PyTorch's count of a parameter's changes has risen; then all such copies are, in few kernels. A fused
    optimiser and changes of `.data` do not count: `torch.autograd.graph.increment_version` must follow them.
    Parameters must not be created in inference mode.
    """
    device = parameters[0].device
    key = (dtype, device, rows, *map(id, parameters))
    copy = _copies.get(key)
    # A copy from the inference mode of an evaluation could not be trained with.
    with torch.inference_mode(False), torch.no_grad():
        if copy is None or any(source() is not x for source, x in zip(copy.sources, parameters, strict=True)):
            copy = _copies[key] = _allocate(parameters, dtype, rows, fill)
        if copy.versions != [x._version for x in parameters]:
            _write(dtype, device)
    return copy.joined


def _allocate(parameters: Sequence[Tensor], dtype: torch.dtype, rows: int | None, fill: float) -> _Copy:
    lengths = [len(x) for x in parameters]
    shape = (rows or sum(lengths), *parameters[0].shape[1:])
    joined = torch.empty(shape, dtype=dtype, device=parameters[0].device)
    joined[sum(lengths) :] = fill
    sources = [weakref.ref(x) for x in parameters]
    return _Copy(sources, [-1] * len(lengths), joined[: sum(lengths)].split(lengths), joined)


def _write(dtype: torch.dtype, device: torch.device) -> None:
    """Writes all copies on `device` whose parameters have changed, in few kernels; forgets those without parameters."""
    targets: list[Tensor] = []
    changed: list[Tensor] = []
    for key, copy in [*_copies.items()]:
        parameters = [source() for source in copy.sources]
        if any(x is None for x in parameters):
            del _copies[key]
        elif key[:2] == (dtype, device):
            for place, (parameter, part) in enumerate(zip(parameters, copy.parts, strict=True)):
                assert parameter is not None
                if copy.versions[place] != parameter._version:
                    copy.versions[place] = parameter._version
                    targets.append(part)
                    changed.append(parameter)
    torch._foreach_copy_(targets, changed)
