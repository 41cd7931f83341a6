"""Functions of tensors that a GPU computes in few kernels."""

import functools
import logging
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
VARIANTS = 32
"""Most compiled variants of a function: with or without gradients and dropout, by types."""


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function; where its first argument is on a GPU it is compiled at its first call (`torch.compile`).

    One compilation serves all sizes of the first dimension. Its dropout draws from the same generator as PyTorch's own,
    but not the same numbers.
    """

    @functools.cache
    def compiled_function() -> Callable[..., Any]:
        return compiled(function)

    @functools.wraps(function)
    def call(first: Tensor, *others: Any) -> Any:
        return compiled_function()(first, *others) if compiles(first) else function(first, *others)

    return call


def compiles(x: Tensor) -> bool:
    """Whether functions of `x` are compiled."""
    return x.is_cuda and has_compiler()


@functools.cache
def has_compiler() -> bool:
    """Whether kernels can be compiled: by Triton, which needs a C compiler. Logs a line if not."""
    c_compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    missing = [name for name, found in (("triton", find_spec("triton")), ("a C compiler", c_compiler)) if not found]
    if missing:
        LOG.warning("without %s, training and encoding on a GPU are slower", " and ".join(missing))
    return not missing


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the compiled function. The first dimension of its first argument, and of those as long, may vary."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    compiled_function = torch.compile(function)

    def call(first: Tensor, *others: Any) -> Any:
        for x in (first, *others):
            if isinstance(x, Tensor) and len(x) == len(first):
                torch._dynamo.maybe_mark_dynamic(x, 0)
        return compiled_function(first, *others)

    return call
