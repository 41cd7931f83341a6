"""What torch.compile does with a function on the fake device: AOTAutograd's graphs, each of them few kernels.

Inductor fuses elementwise operations and sums of rows into one kernel. Sums over the rows of a chunk (gradients of
weights) are another one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor
from torch._inductor.decomposition import select_decomp_table

Ran = Callable[[Callable[..., Any], list[Any], int], Any]
"""ran(graph, inputs, rows) runs a fused graph over so many rows."""


def as_few_kernels(ran: Ran, function: Callable[..., Any]) -> Callable[..., Any]:
    """As pipeline/modeling/fused.py `compiled`; each graph runs in `ran`."""
    variants: dict[Any, Callable[..., Any]] = {}

    def call(*arguments: Any) -> Any:
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        shapes = [(x.shape, x.dtype, x.requires_grad) if isinstance(x, Tensor) else x for x in arguments]
        key = (*shapes, torch.is_grad_enabled(), torch.is_autocast_enabled("cuda"))
        if key not in variants:
            variants[key] = _trace(ran, function, arguments)
        return variants[key](*tensors)

    return call


def _trace(ran: Ran, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    fixed = [None if isinstance(x, Tensor) else x for x in arguments]
    places = [place for place, x in enumerate(arguments) if isinstance(x, Tensor)]
    tracing = True

    def of_tensors(*tensors: Tensor) -> Any:
        given = dict(zip(places, tensors, strict=True))
        return function(*(given.get(place, x) for place, x in enumerate(fixed)))

    def kernels(place: int, graph: torch.fx.GraphModule, examples: list[Tensor]) -> Callable[..., Any]:
        """`place`: of an input with a row for each row of the chunk."""

        def run(*inputs: Any) -> Any:
            return graph(*inputs) if tracing else ran(graph, [*inputs], len(inputs[place]))

        return make_boxed_func(run)

    traced = aot_function(
        of_tensors,
        fw_compiler=partial(kernels, 0),
        bw_compiler=partial(kernels, -1),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )
    # It keeps the tensors of its first call.
    own = [torch.empty_like(arguments[place]).requires_grad_(arguments[place].requires_grad) for place in places]
    out = traced(*own)
    if isinstance(out, Tensor) and out.requires_grad:
        out.sum().backward()
    tracing = False
    return traced  # type: ignore[no-any-return]
