"""The parts of a transformer layer, as functions of Hugging Face's modules.

Within `autocast` products have its type (bfloat16 or float16), as have the states between the layers. Sums, the
statistics of norms and gradients of weights are float32. Outside of it everything is float32.

Shapes: R rows, D dimensions, E outputs of a linear map, I of a feed-forward network's first map, J = 2 I of a gated
one; d pairs of a head's dimensions, H heads; V token, K type and L position embeddings.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from pipeline.modeling.cast_weights import cast
from pipeline.modeling.fused import fused, is_compiled
from pipeline.runtime.precision import autocast_type

MANY_ROWS = 8192
"""From here on a GPU computes bias and GELU in one compiled function. With fewer rows its calls would take the host
longer than they save the GPU."""


class Residual(NamedTuple):
    """The parts of a sum with a residual, and the norm of that sum."""

    dense: nn.Linear
    norm: nn.LayerNorm
    dropout: nn.Dropout


class Embeddings(NamedTuple):
    """The parts of the embeddings."""

    words: nn.Embedding
    types: nn.Embedding | None
    positions: nn.Embedding | None
    norm: nn.LayerNorm
    dropout: nn.Dropout
    first_position: int
    """Row of the table for a text's first token."""


def linear(module: nn.Linear, x_RD: Tensor) -> Tensor:
    """Returns the linear map of each row, [R, E]."""
    return linears((module,), x_RD)[1]


def linears(modules: tuple[nn.Linear, ...], x_RD: Tensor) -> tuple[Tensor, ...]:
    """Returns x, and each linear map of it, [R, E]; within `autocast` by one product.

    A caller that uses x again must use the returned x: then one operation sums both gradients.
    """
    product_type = autocast_type(x_RD.device.type)
    if product_type is None:
        return x_RD, *(module(x_RD) for module in modules)
    return low_linears(modules, x_RD.to(product_type), bias=True)


def low_linears(modules: tuple[nn.Linear, ...], x_RD: Tensor, bias: bool) -> tuple[Tensor, ...]:
    """As `linears`, in x's low precision. `bias`: adds the biases."""
    weights = [module.weight for module in modules]
    biases = [module.bias for module in modules if module.bias is not None] if bias else []
    sizes = [module.out_features for module in modules]
    copies = cast(weights, x_RD.dtype), cast(biases, x_RD.dtype) if biases else None
    result: tuple[Tensor, ...] = _Linears.apply(x_RD, *copies, sizes, *weights, *biases)
    return result


def row_linear(module: nn.Linear, rows: slice, x_RD: Tensor) -> Tensor:
    """Returns these outputs of a linear map, [R, number of `rows`]."""
    product_type = autocast_type(x_RD.device.type)
    weight_ED, bias_E = module.weight[rows], None if module.bias is None else module.bias[rows]
    if product_type is None:
        return F.linear(x_RD, weight_ED, bias_E)
    copies = [None if x is None else cast((x,), product_type)[rows] for x in (module.weight, module.bias)]
    parameters = [x for x in (weight_ED, bias_E) if x is not None]
    mapped_RE: Tensor = _Linears.apply(x_RD.to(product_type), *copies, [len(weight_ED)], *parameters)[1]
    return mapped_RE


class _Linears(torch.autograd.Function):
    """Returns its input and linear maps by cast weights. Gradients of weights are float32 products of cast rows."""

    @staticmethod
    def forward(
        ctx: Any, x_RD: Tensor, weight_ED: Tensor, bias_E: Tensor | None, sizes: list[int], *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        """`sizes`: outputs of each map. `parameters`: weights, then biases: `weight_ED`, `bias_E` are their copies."""
        ctx.save_for_backward(x_RD, weight_ED)
        ctx.sizes, ctx.has_bias = sizes, bias_E is not None
        ctx.set_materialize_grads(False)
        joined_RE = torch.mm(x_RD, weight_ED.T) if bias_E is None else affine(x_RD, weight_ED, bias_E)
        return x_RD, *joined_RE.split(sizes, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        # Attention returns separate gradients of queries, keys and values: joining them would take longer.
        by_x, *of_maps = gradients
        x_RD, weight_ED = ctx.saved_tensors
        pairs = [x for x in zip(of_maps, weight_ED.split(ctx.sizes), strict=True) if x[0] is not None]
        if pairs:
            by_x = torch.mm(*pairs[0]) if by_x is None else torch.addmm(by_x, *pairs[0])
        for pair in pairs[1:]:
            by_x.addmm_(*pair)
        by_weights = [None if gradient is None else float32_product(gradient.T, x_RD) for gradient in of_maps]
        by_biases = []
        if ctx.has_bias:
            by_biases = [None if gradient is None else float32_sum(gradient) for gradient in of_maps]
        return by_x, None, None, None, *by_weights, *by_biases


def affine(x_RD: Tensor, weight_ED: Tensor, bias_E: Tensor) -> Tensor:
    """Returns x @ weight.T + bias, of their type, [R, E]; without gradient."""
    if x_RD.device.type == "cpu" and x_RD.dtype == torch.bfloat16 and _has_onednn():
        # `addmm` first copies the bias to all rows, a tenth of its time.
        return torch.ops.mkldnn._linear_pointwise(x_RD, weight_ED, bias_E, "none", [], "")
    return torch.addmm(bias_E, x_RD, weight_ED.T)


@functools.cache
def _has_onednn() -> bool:
    """Whether oneDNN multiplies bfloat16 on this processor."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def float32_product(a: Tensor, b: Tensor) -> Tensor:
    """Returns the product of two matrices of low precision, float32."""
    # A CPU has no such product.
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.mm(a, b).float()


def float32_sum(x_RE: Tensor) -> Tensor:
    """Returns the sum of rows of low precision, float32 [E]."""
    # With `dtype` a CPU copies all rows to float32 first; without it the sum is float32 too, and rounded once.
    return x_RE.sum(0, dtype=torch.float32) if x_RE.is_cuda else x_RE.sum(0).float()


def linear_and_activation(
    dense: nn.Linear, activation: Callable[[Tensor], Tensor], x_RD: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns x, and the activation of its linear map, [R, I]; further uses of x as in `linears`."""
    product_type = autocast_type(x_RD.device.type)
    if product_type is None or not (is_gelu(activation) and len(x_RD) >= MANY_ROWS and is_compiled(x_RD)):
        x_RD, inner_RI = linears((dense,), x_RD)
        return x_RD, activation(inner_RI)
    x_RD, inner_RI = low_linears((dense,), x_RD.to(product_type), bias=False)
    return x_RD, _gelu(inner_RI, dense.bias)


def is_gelu(activation: Callable[[Tensor], Tensor]) -> bool:
    """Whether the activation is GELU, computed with the error function."""
    return F.gelu in (activation, getattr(activation, "act", None))


@fused
def _gelu(x_RI: Tensor, bias_I: Tensor) -> Tensor:
    # Backward, one kernel reads the gradient of x for both, the map and the sum that is the gradient of the bias.
    return F.gelu(x_RI + bias_I).to(x_RI.dtype)


def gated(dense: nn.Linear, activation: Callable[[Tensor], Tensor], x_RD: Tensor) -> Tensor:
    """Returns activation(a) * b, [R, I], for a linear map's outputs a and b (Shazeer 2020, "GLU Variants")."""
    joined_RJ = linear(dense, x_RD)
    if is_gelu(activation):
        return _gelu_gate(joined_RJ)
    inner_RI, factor_RI = joined_RJ.chunk(2, -1)
    return activation(inner_RI) * factor_RI


@fused
def _gelu_gate(joined_RJ: Tensor) -> Tensor:
    inner_RI, factor_RI = joined_RJ.chunk(2, -1)
    return F.gelu(inner_RI) * factor_RI


def linear_and_sum(dense: nn.Linear, x_RD: Tensor, residual_RD: Tensor) -> Tensor:
    """Returns residual + linear(x), float32 [R, D]."""
    return residual_RD.float() + linear(dense, x_RD)


def linear_sum_and_norm(parts: Residual, x_RD: Tensor, residual_RD: Tensor) -> tuple[Tensor, Tensor]:
    """Returns residual + dropout(linear(x)), float32 [R, D], and its norm in the type of products."""
    dense, norm, dropout = parts
    mapped_RD = dropout(linear(dense, x_RD))
    return _sum_and_norm(mapped_RD, residual_RD, norm.weight, norm.bias, norm.eps)


@fused
def _sum_and_norm(
    x_RD: Tensor, residual_RD: Tensor, weight_D: Tensor, bias_D: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    summed_RD = x_RD.float() + residual_RD.float()
    return summed_RD, F.layer_norm(summed_RD, weight_D.shape, weight_D, bias_D, epsilon).to(x_RD.dtype)


def rotated(x_RD: Tensor, cos_Rd: Tensor, sin_Rd: Tensor) -> Tensor:
    """Returns each head's pairs of dimensions, one of each half, rotated by angles (Su et al. 2021), [R, D].

    `cos_Rd`, `sin_Rd`: of a head's d pairs, float32. All may have further dimensions before R.
    """
    return _rotated(x_RD, cos_Rd, sin_Rd)


@fused
def _rotated(x_RD: Tensor, cos_Rd: Tensor, sin_Rd: Tensor) -> Tensor:
    cos_R1d, sin_R1d = cos_Rd[..., None, :], sin_Rd[..., None, :]
    first_RHd, second_RHd = x_RD.float().unflatten(-1, (-1, 2, cos_Rd.shape[-1])).unbind(-2)
    turned = first_RHd * cos_R1d - second_RHd * sin_R1d, second_RHd * cos_R1d + first_RHd * sin_R1d
    return torch.stack(turned, -2).flatten(-3).to(x_RD.dtype)


def linear_and_norm(parts: Residual, x_RD: Tensor, residual_RD: Tensor, float32: bool = False) -> Tensor:
    """Returns the norm of residual + dropout(linear(x)), [R, D]. `float32`: also within `autocast`."""
    dense, norm, dropout = parts
    product_type, bias_D = autocast_type(x_RD.device.type), None
    if product_type is None or x_RD.device.type == "cpu":
        mapped_RD, mask_RD = dropout(linear(dense, x_RD)), None
    else:  # the bias is added with what follows, so that its gradient is summed there
        _, mapped_RD = low_linears((dense,), x_RD.to(product_type), bias=False)
        bias_D, mask_RD = dense.bias, dropout_mask(dropout, mapped_RD)
    result_type = torch.float32 if float32 else mapped_RD.dtype
    return _add_norm(mapped_RD, residual_RD, bias_D, mask_RD, dropout.p, norm.weight, norm.bias, norm.eps, result_type)


def dropout_mask(dropout: nn.Dropout, x_RD: Tensor) -> Tensor | None:
    """Returns which numbers the dropout keeps, bool [R, D]; None: all.

    Compiled functions must not draw them: the same seed gives other numbers in a kernel that is fused in another way,
    as in the two passes of the gradient cache (PyTorch 2.13; its issue 198333).
    """
    if not dropout.training or not dropout.p:
        return None
    return torch.empty_like(x_RD, dtype=torch.bool).bernoulli_(1 - dropout.p)


def _dropped(x_RD: Tensor, mask_RD: Tensor | None, probability: float) -> Tensor:
    return x_RD if mask_RD is None else x_RD * mask_RD * (1 / (1 - probability))


@fused
def _add_norm(
    x_RD: Tensor,
    residual_RD: Tensor,
    x_bias_D: Tensor | None,
    mask_RD: Tensor | None,
    probability: float,
    weight_D: Tensor,
    bias_D: Tensor | None,
    epsilon: float,
    dtype: torch.dtype,
) -> Tensor:
    x_RD = x_RD.float() if x_bias_D is None else x_RD + x_bias_D
    summed_RD = _dropped(x_RD, mask_RD, probability) + residual_RD.float()
    return F.layer_norm(summed_RD, weight_D.shape, weight_D, bias_D, epsilon).to(dtype)


def normed(norm: nn.LayerNorm, x_RD: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the norm of each row, of type `dtype` (None: x's)."""
    return _normed(x_RD, norm.weight, norm.bias, norm.eps, dtype or x_RD.dtype)


@fused
def _normed(x_RD: Tensor, weight_D: Tensor, bias_D: Tensor | None, epsilon: float, dtype: torch.dtype) -> Tensor:
    return F.layer_norm(x_RD.float(), weight_D.shape, weight_D, bias_D, epsilon).to(dtype)


def embeddings(parts: Embeddings, ids_R: Tensor, position_R: Tensor, type_R: Tensor | None) -> Tensor:
    """Returns token, type and position embeddings, summed and normalised, with dropout, [R, D].

    `position_R`: from 0. `type_R` None: type 0.
    """
    norm, dropout, dtype = parts.norm, parts.dropout, autocast_type(ids_R.device.type)
    if parts.types is not None and type_R is None:
        type_R = torch.zeros_like(ids_R)
    tables = (parts.words, parts.types, parts.positions)
    embedded_RD: Tensor = _embeddings(
        ids_R,
        type_R if parts.types is not None else None,
        position_R + parts.first_position if parts.first_position else position_R,
        *(None if table is None else table.weight for table in tables),
        None if dtype is None else dropout_mask(dropout, norm.weight.expand(len(ids_R), -1)),
        dropout.p,
        norm.weight,
        norm.bias,
        tuple(None if table is None else table.padding_idx for table in tables),
        norm.eps,
        dtype or torch.float32,
    )
    return dropout(embedded_RD) if dtype is None else embedded_RD


@fused
def _embeddings(
    ids_R: Tensor,
    type_R: Tensor | None,
    row_R: Tensor,
    word_VD: Tensor,
    type_KD: Tensor | None,
    position_LD: Tensor | None,
    mask_RD: Tensor | None,
    probability: float,
    weight_D: Tensor,
    bias_D: Tensor,
    padding: tuple[int | None, ...],
    epsilon: float,
    dtype: torch.dtype,
) -> Tensor:
    """`row_R`: rows of the table of positions. `padding`: each table's padding row."""
    summed_RD = F.embedding(ids_R, word_VD, padding[0])
    if type_R is not None and type_KD is not None:
        summed_RD = summed_RD + F.embedding(type_R, type_KD, padding[1])
    if position_LD is not None:
        summed_RD = summed_RD + F.embedding(row_R, position_LD, padding[2])
    normed_RD = F.layer_norm(summed_RD, weight_D.shape, weight_D, bias_D, epsilon)
    return _dropped(normed_RD, mask_RD, probability).to(dtype)
