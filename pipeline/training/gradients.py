"""Backward passes that add to a module's gradients."""

import torch
from torch import Tensor, nn


def add_gradients(module: nn.Module, output: Tensor, gradient: Tensor | None = None) -> None:
    """Adds the gradients of `output` to those of the module's parameters, as output.backward(gradient) does.

    On a GPU all are added together, in a few kernels; PyTorch needs one for each parameter.
    """
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
