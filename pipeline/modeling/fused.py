"""Functions of tensors that a GPU computes in few kernels."""

import functools
import logging
import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

LOG = logging.getLogger(__name__)
VARIANTS = 32
"""Largest number of compiled variants of one function: gradients, dropout and types differ."""


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function; where its first argument is on a GPU it is compiled at its first call (`torch.compile`).

    One compilation serves all sizes of the first dimension from 2 on. The function must not draw random numbers.
    """
    on_gpu = functools.cache(lambda: compiled(function))

    @functools.wraps(function)
    def call(first: Tensor, *others: Any) -> Any:
        return on_gpu()(first, *others) if is_compiled(first) else function(first, *others)

    return call


def is_compiled(x: Tensor) -> bool:
    """Whether functions of `x` are compiled."""
    return x.is_cuda and has_compiler()


@functools.cache
def has_compiler() -> bool:
    """Whether kernels can be compiled for the GPU; compiles one. Logs a line if not.

    Triton compiles them, for GPUs from Volta on. It needs a C compiler and Python's headers.
    """
    from torch.utils._triton import has_triton

    needed = {
        "Triton for this GPU": has_triton(),
        "a C compiler": os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"),
        "Python.h": Path(sysconfig.get_path("include"), "Python.h").exists(),
    }
    missing = [name for name, found in needed.items() if not found]
    if missing:
        LOG.warning("without %s, training and encoding on a GPU are slower", ", ".join(missing))
        return False
    try:
        torch.compile(torch.neg)(torch.zeros(2, device="cuda"))
    except Exception as error:  # whatever a broken compiler, or a folder that cannot be written, ends in
        reason = str(error).splitlines()[0] if str(error) else ""
        LOG.warning("kernels cannot be compiled, so a GPU is slower: %s: %s", type(error).__name__, reason)
        return False
    return True


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the compiled function. The first dimension of its first argument, and of those as long, may vary."""
    by_compiler = torch.compile(function, recompile_limit=VARIANTS)  # type: ignore[call-overload]

    def call(first: Tensor, *others: Any) -> Any:
        for x in (first, *others):
            # A mark on a parameter would stay, and variants without it would not fit any more.
            if isinstance(x, Tensor) and not isinstance(x, nn.Parameter) and len(x) == len(first):
                torch._dynamo.maybe_mark_dynamic(x, 0)
        return by_compiler(first, *others)

    return call
