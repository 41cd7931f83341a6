"""RetroMAE: a one-layer decoder predicts every token from the text's CLS vector (Xiao et al. 2022, sections 3.2, 3.3).

Shapes: B sequences of T tokens in a chunk, D dimensions, M masked tokens, L tokens of each of n sequences in a group.
"""

from typing import Any

import torch
from torch import Tensor, nn

from pipeline.modeling.packed_layers import (
    attention_layouts,
    embed,
    final_norm,
    keys_values,
    rest_of_layer,
    with_positions,
)
from pipeline.modeling.packing import Batch, Chunk, one_group
from pipeline.modeling.transformer import HEAD, LanguageModel, Seed, States, prediction_losses
from pipeline.pretrain.objectives import Objective
from pipeline.training import flops

SEEN = 0.5
"""Share of the other tokens that a row of the decoder may see (section 3.3)."""


def losses(
    lm: LanguageModel, head: nn.ModuleList, states: States, chunk: Chunk, batch: Batch, seed: Seed
) -> tuple[Tensor, Tensor]:
    """Returns the encoder's MLM loss at masked tokens and the decoder's cross-entropy at all tokens but the first."""
    assert states.late_MD is not None
    assert chunk.masked.at_R is not None
    seed(HEAD, 0)
    true_T = chunk.ids_T.index_copy(0, chunk.masked.at_R, chunk.label_M)
    rebuilt_TD = decode(lm, head[0], states.cls_BD, true_T, chunk)
    both_ND = torch.cat([states.late_MD, rebuilt_TD])
    mlm_M, decoder_T = prediction_losses(lm, both_ND, torch.cat([chunk.label_M, true_T])).tensor_split(
        [len(chunk.label_M)]
    )
    rebuilt = batch.tokens - batch.sequences
    return mlm_M.sum() / max(batch.masked, 1), (decoder_T * (chunk.position_T > 0)).sum() / rebuilt


def decode(lm: LanguageModel, layer: Any, cls_BD: Tensor, true_T: Tensor, chunk: Chunk) -> Tensor:
    """Returns the decoder's states [T, D] for the true ids (enhanced decoding).

    The states of a sequence's first token have no meaning. Queries are [h + p_i], keys and values [h, e_i + p_i]: h the
    CLS vector, e and p embeddings of token and position (code: the sums e_i + p_i are normalised as the backbone's own
    embeddings are). A model with rotary positions has no p: its attention rotates queries and keys by them.
    """
    assert chunk.cls.at_R is not None
    context_TD = embed(lm, true_T, chunk.position_T)
    context_TD = context_TD.index_copy(0, chunk.cls.at_R, cls_BD.to(context_TD.dtype))
    cls_TD = cls_BD[torch.cumsum(chunk.position_T == 0, 0) - 1]
    query_TD = with_positions(lm, cls_TD, chunk.position_T)
    # Few long calls of attention are faster on a GPU.
    every = chunk.every if true_T.device.type == "cpu" else one_group(chunk.every)
    length_B = (every.edges[1:] - every.edges[:-1]).long()
    of_groups = length_B.split([sequences for sequences, _ in every.groups])
    masks = [visible(length_n, width) for length_n, (_, width) in zip(of_groups, every.groups, strict=True)]
    _, *key_value = keys_values(lm, layer, context_TD)
    layouts = attention_layouts(lm, [layer], every, chunk._replace(every=every), masks)
    return final_norm(lm, rest_of_layer(lm, layer, query_TD, key_value, layouts))


def visible(length_n: Tensor, width: int) -> Tensor:
    """Returns which keys each row sees, bool [n, 1, L, L]: the first, and a random half of the others; not itself.

    `length_n`: tokens of each sequence; padded keys, up to L = `width`, are not seen.
    """
    seen_nLL = torch.rand(len(length_n), width, width, device=length_n.device) < SEEN
    seen_nLL.diagonal(dim1=1, dim2=2).fill_(False)
    seen_nLL &= torch.arange(width, device=length_n.device) < length_n[:, None, None]
    seen_nLL[:, :, 0] = True
    return seen_nLL[:, None]


def operations(config: Any, head_layers: int, chunk: Chunk) -> float:
    """Returns the operations of the decoder and the prediction head, forward."""
    rows = chunk.masked.size + chunk.every.size
    return flops.layer(config, chunk.every, chunk.every) + flops.predictions(config, rows)


OBJECTIVE = Objective(("mlm", "decoder"), losses, operations)
