"""Softmax attention within each sequence of a packing.

Shapes: R query rows and T tokens of all sequences, P those rows of a group padded to equally many for each sequence, H
heads, D dimensions.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.modeling.packing import Rows, has_kernel, split_groups

LONG = 512
"""Keys of a sequence above which a CPU's attention without dropout keeps no scores: their number grows with the
square."""
FEW_SCORES = 1 << 16
"""Fewer scores are computed by one float32 call on a CPU: starting several operations takes longer than they do."""

Masks = Sequence[Tensor | None]
"""For every group of sequences, the keys that a row may see (bool), or what is added to the scores (of the queries'
type; on a CPU float32), broadcast to [sequences, heads, rows, length]; None: a row sees all keys."""


def attend(
    query_RD: Tensor,
    key_TD: Tensor,
    value_TD: Tensor,
    queries: Rows,
    keys: Rows,
    heads: int,
    dropout: float,
    masks: Masks | None = None,
    window: int | None = None,
) -> Tensor:
    """Returns the softmax attention of each row over its own sequence's tokens, [R, D].

    `window`: tokens at a greater distance are not seen; only by the kernel, and for all rows.
    """
    if queries.size == 0:
        return query_RD
    if masks is None and has_kernel(query_RD.device.type):
        return _by_kernel((query_RD, key_TD, value_TD), queries, keys, heads, dropout, window)
    assert window is None
    projected = split_groups(queries, query_RD), split_groups(keys, key_TD), split_groups(keys, value_TD)
    contexts = []
    for i, (query, key, value, (sequences, width), pad) in enumerate(
        zip(*projected, queries.groups, queries.pads, strict=True)
    ):
        if width == 0:  # these sequences have no query rows
            continue
        query, key, value = (x.unflatten(0, (sequences, -1)).unflatten(2, (heads, -1)) for x in (query, key, value))
        mask = None if masks is None else masks[i]
        attention = _attention(query, length=key.shape[1], dropout=dropout)
        with _one_backend() if query.is_cuda and mask is not None else nullcontext():
            context = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, dropout)
        context_PD = context.transpose(1, 2).flatten(0, 1).flatten(1)
        contexts.append(context_PD if pad is None else context_PD.index_select(0, pad.real_R))
    return torch.cat(contexts)


def _one_backend() -> AbstractContextManager[None]:
    """Both passes of the gradient cache must drop the same numbers, so the choice must not depend on gradients."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def _attention(query: Tensor, length: int, dropout: float) -> Callable[..., Tensor]:
    """Returns the fastest function for a group with queries [sequences, rows, heads, size] and `length` keys each.

    The choice depends on sizes, type and dropout, never on gradients: both passes of the gradient cache use the same.
    """
    if query.device.type == "mps" and dropout:
        return by_products
    if query.device.type != "cpu" or query.dtype == torch.float32:
        return F.scaled_dot_product_attention
    sequences, rows, heads, _ = query.shape
    are_few = sequences * heads * rows * length < FEW_SCORES
    return in_float32 if not dropout and (are_few or length > LONG) else by_products


def in_float32(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """As `scaled_dot_product_attention`; its backward pass is slow in bfloat16 on a CPU (PyTorch 2.13)."""
    with torch.autocast("cpu", enabled=False):
        context = F.scaled_dot_product_attention(query.float(), key.float(), value.float(), mask, dropout)
    return context.to(query.dtype)


def by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """As `scaled_dot_product_attention`, by two products; each row must see a key.

    On MPS that function's dropout is ignored, or an error: that depends on the version of PyTorch, and on whether
    gradients are computed (PyTorch's pull request 184126). On a CPU `in_float32` takes up to 1.6 times as long as these
    products in bfloat16 (measured, forward and backward).
    """
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return F.dropout(scores.softmax(-1).to(value.dtype), dropout) @ value


def _by_kernel(
    projected: Sequence[Tensor], queries: Rows, keys: Rows, heads: int, dropout: float, window: int | None
) -> Tensor:
    """`projected`: queries, keys and values."""
    from torch.nn.attention import varlen

    size = projected[0].shape[1] // heads
    query, key, value = (x.unflatten(1, (heads, size)) for x in projected)
    if size % 8:  # the kernel needs heads of a multiple of 8; zeros change no product
        query, key, value = (F.pad(x, (0, -size % 8)) for x in (query, key, value))
    layout, scale = (queries.edges, keys.edges, queries.longest, keys.longest), size**-0.5
    reach = -1 if window is None else window
    if dropout == 0.0:
        context = varlen.varlen_attn(query, key, value, *layout, scale=scale, window_size=(reach, reach))
    else:  # the public function has no dropout; this is the kernel that it calls
        kernel = torch.ops.aten._flash_attention_forward
        sides = {} if window is None else {"window_size_left": window, "window_size_right": window}
        context = kernel(query, key, value, *layout, dropout, False, False, scale=scale, **sides)[0]
    assert isinstance(context, Tensor)
    return context[..., :size].flatten(1)
