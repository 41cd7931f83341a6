"""The losses of pre-training.

Shapes: N predictions, V vocabulary (W: padded), D dimensions, S spans, or segments and passages together (rows 2i and
2i+1 are a pair), Z entries of a block.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from pipeline.modeling.cast_weights import cast
from pipeline.modeling.fused import fused
from pipeline.modeling.layers import affine, float32_product
from pipeline.runtime.precision import autocast_type

BLOCK = 2048
"""Vocabulary entries whose float32 logits are computed together: they fit a CPU's cache."""
ALIGNED = 64
"""In low precision the vocabulary is padded to a multiple: GPUs multiply such matrices faster."""
ROWS = 2048
"""Most predictions whose logits are float32 at once; none are where a compiler fuses the operations."""


def cross_entropy(states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, label_N: Tensor) -> Tensor:
    """Returns the cross-entropy of softmax(states @ weight.T + bias), one loss per prediction, float32 [N]."""
    dtype = autocast_type(states_ND.device.type)
    if dtype is None:
        return _Blocked.apply(states_ND, weight_VD, bias_V, label_N, weight_VD, bias_V)
    return (in_blocks if states_ND.device.type == "cpu" else in_one_product)(
        states_ND, weight_VD, bias_V, label_N, dtype
    )


def in_blocks(states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, label_N: Tensor, dtype: torch.dtype) -> Tensor:
    """As `cross_entropy`, with products of type `dtype`, in blocks of the vocabulary."""
    copies = cast((weight_VD,), dtype), cast((bias_V,), dtype)
    return _Blocked.apply(states_ND.to(dtype), *copies, label_N, weight_VD, bias_V)


def in_one_product(states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, label_N: Tensor, dtype: torch.dtype) -> Tensor:
    """As `cross_entropy`, with a product of type `dtype` whose vocabulary is padded."""
    entries = -(-len(weight_VD) // ALIGNED) * ALIGNED
    copies = cast((weight_VD,), dtype, entries), cast((bias_V,), dtype, entries, -torch.inf)
    return _Padded.apply(states_ND.to(dtype), *copies, label_N, weight_VD, bias_V)


class _Padded(torch.autograd.Function):
    """Keeps the logits in low precision, and writes their gradient over them: no float32 copy of them is in memory."""

    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_WD: Tensor,
        bias_W: Tensor,
        label_N: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
    ) -> Tensor:
        """`weight_WD`, `bias_W`: cast copies of the parameters, with entries of probability 0 after the V."""
        logits_NW = torch.addmm(bias_W, states_ND, weight_WD.T)
        parts = [_losses(*part) for part in _parts(logits_NW, label_N)]
        log_sum_N, loss_N = (torch.cat(x) for x in zip(*parts, strict=True))
        ctx.save_for_backward(states_ND, weight_WD, label_N, log_sum_N, logits_NW)
        ctx.entries = len(weight_VD)
        return loss_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        (gradient_N,) = gradients
        states_ND, weight_WD, label_N, log_sum_N, logits_NW = ctx.saved_tensors
        for part in _parts(logits_NW, label_N, log_sum_N, gradient_N):
            _replace_by_gradient(*part)
        by_weight = float32_product(logits_NW.T, states_ND)[: ctx.entries]
        by_bias = logits_NW.sum(0, dtype=torch.float32)[: ctx.entries]
        return logits_NW @ weight_WD, None, None, None, by_weight, by_bias


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yields parts of about equally many rows, at most ROWS, of each tensor."""
    number = max(1, -(-len(tensors[0]) // ROWS))
    yield from zip(*(x.chunk(number) for x in tensors), strict=True)


@fused
def _losses(logits_NW: Tensor, label_N: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the logarithm of each row's sum, and its loss, each float32 [N]."""
    log_sum_N = logits_NW.float().logsumexp(1)
    return log_sum_N, log_sum_N - logits_NW.gather(1, label_N[:, None])[:, 0].float()


@fused
def _replace_by_gradient(logits_NW: Tensor, label_N: Tensor, log_sum_N: Tensor, gradient_N: Tensor) -> None:
    """Writes the gradient of the logits over them, [N, W]."""
    is_label_NW = torch.arange(logits_NW.shape[1], device=logits_NW.device) == label_N[:, None]
    probability_NW = (logits_NW.float() - log_sum_N[:, None]).exp()
    logits_NW.copy_((probability_NW - is_label_NW.float()) * gradient_N[:, None])


class _Blocked(torch.autograd.Function):
    """Computes the loss in blocks of the vocabulary: the product and its softmax stay in the cache.

    Each block is normalised separately. Its share of the whole softmax, known after the last block, scales only small
    tensors (rows of states and gradients), never the block.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        label_N: Tensor,
        parameter_VD: Tensor,
        parameter_V: Tensor,
    ) -> Tensor:
        """`weight_VD`, `bias_V`: the parameters, or copies of the states' type; probabilities are kept in that type."""
        blocks, sums = [], []
        for weight_ZD, bias_Z in zip(weight_VD.split(BLOCK), bias_V.split(BLOCK), strict=True):
            logits_NZ = affine(states_ND, weight_ZD, bias_Z).float()
            block_NZ = logits_NZ.softmax(1)
            sums.append(logits_NZ.amax(1) - block_NZ.amax(1).log())
            blocks.append(block_NZ.to(states_ND.dtype))
        sum_BN = torch.stack(sums)
        whole_N = sum_BN.logsumexp(0)
        ctx.save_for_backward(states_ND, weight_VD, label_N, (sum_BN - whole_N).exp(), *blocks)
        return whole_N - ((states_ND.float() * weight_VD[label_N]).sum(1) + bias_V[label_N])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        (gradient_N,) = gradients
        states_ND, weight_VD, label_N, share_BN, *blocks = ctx.saved_tensors
        by_states = weight_VD[label_N] * -gradient_N[:, None]
        by_weight = torch.empty_like(weight_VD, dtype=torch.float32)
        by_bias = torch.empty(len(weight_VD), device=weight_VD.device)
        parts = zip(
            blocks,
            share_BN * gradient_N,
            weight_VD.split(BLOCK),
            by_weight.split(BLOCK),
            by_bias.split(BLOCK),
            strict=True,
        )
        for block_NZ, scale_N, weight_ZD, by_weight_ZD, by_bias_Z in parts:
            by_states.addcmul_((block_NZ @ weight_ZD).float(), scale_N[:, None])
            _product(block_NZ.T, (states_ND * scale_N[:, None]).to(block_NZ.dtype), by_weight_ZD)
            _product(scale_N[None].to(block_NZ.dtype), block_NZ, by_bias_Z[None])
        by_weight.index_add_(0, label_N, states_ND * -gradient_N[:, None])
        by_bias.index_add_(0, label_N, -gradient_N)
        return by_states.to(states_ND.dtype), None, None, None, by_weight, by_bias


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Writes the product of two matrices to `out`, float32."""
    if a.dtype == out.dtype:
        torch.mm(a, b, out=out)
    else:
        out.copy_(torch.mm(a, b))


def contrastive(cls_SD: Tensor, part: slice = slice(None)) -> Tensor:
    """Returns the contrastive loss of spans: softmax over all other spans, the pair's other span as label; mean.

    coCondenser, equation 4: inner products, no temperature, no normalisation. `part`: only the share of these rows in
    the mean; over parts that cover all spans the shares sum to the whole.
    """
    all_S = torch.arange(len(cls_SD), device=cls_SD.device)
    own_P = all_S[part]
    scores_PS = (cls_SD[part] @ cls_SD.T).masked_fill(own_P[:, None] == all_S, -torch.inf)
    return F.cross_entropy(scores_PS, own_P ^ 1, reduction="sum") / len(cls_SD)


def inverse_cloze(vectors_SD: Tensor, part: slice = slice(None)) -> Tensor:
    """Returns the loss of segments: softmax over all passages, the segment's own passage as label; mean.

    Lee, Chang and Toutanova 2019, "Inverse Cloze Task": inner products, no temperature, no normalisation. Row 2i is a
    segment, 2i+1 its passage. `part` as in `contrastive`; it starts at an even row.
    """
    own_Q = torch.arange(len(vectors_SD), device=vectors_SD.device)[part][::2] // 2
    scores_QP = vectors_SD[part][::2] @ vectors_SD[1::2].T
    return F.cross_entropy(scores_QP, own_Q, reduction="sum") / (len(vectors_SD) // 2)
