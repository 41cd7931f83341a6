"""Encoders without packed layers: Hugging Face's own forward pass over padded texts. It is slower.

Shapes: B rows of T tokens in a chunk, padded to L tokens each; R rows of states that are needed, D dimensions, M masked
tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.errors import InputError, reason
from pipeline.modeling.inputs import Packed, pack
from pipeline.modeling.packing import Chunk, Rows, one_group, real_keys

TOLERANCE = 1e-3
"""Largest difference, relative to the largest number, of results that must be equal but for rounding."""


class Padded(NamedTuple):
    """The inputs of a Hugging Face model."""

    inputs: dict[str, Tensor]
    """int64 [B, L] each."""
    every: Rows
    """All tokens, with their places among the padded ones."""


def pad(model: Any, packed: Packed | Chunk) -> Padded:
    every = one_group(packed.every)
    (padding,), (real,) = every.pads, real_keys(every)
    assert padding is not None
    assert real is not None
    shape, real_BL = (len(every.edges) - 1, every.longest), real[:, 0, 0]
    token = model.config.pad_token_id or 0
    inputs = {
        "input_ids": packed.ids_T[padding.pad_P].view(shape).masked_fill(~real_BL, token),
        "attention_mask": real_BL.long(),
    }
    type_T = getattr(packed, "type_T", None)
    if type_T is not None:
        inputs["token_type_ids"] = (type_T[padding.pad_P].view(shape) & real_BL).long()
    return Padded(inputs, every)


def unpad(states_BLD: Tensor, every: Rows) -> Tensor:
    """Returns the states of the tokens that are no padding, float32 [T, D]."""
    (padding,) = every.pads
    assert padding is not None
    return states_BLD.flatten(0, 1)[padding.real_R].float()


def last_states(model: Any, packed: Packed | Chunk, wanted: Rows) -> Tensor:
    """As `transformer.last_states`; computes all rows."""
    inputs, every = pad(model, packed)
    states_TD = unpad(model.base_model(**inputs, return_dict=True).last_hidden_state, every)
    return wanted.take(states_TD)


def logits(model: Any, packed: Packed) -> Tensor:
    """Returns the logits of a model for sequence classification, float32 [B]."""
    logit_B1: Tensor = model(**pad(model, packed).inputs, return_dict=True).logits
    return logit_B1[:, 0].float()


def masked_states(lm: Any, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """Returns the backbone's states at CLS [B, D] and, at the masked tokens, what the vocabulary's matrix is multiplied
    with [M, D]; float32. `lm`: for masked language modelling."""
    inputs, every = pad(lm, chunk)
    with _read_states(lm) as read:
        lm(**inputs, return_dict=True)
    states_TD, predicted_TD = (unpad(read[name].view(*inputs["input_ids"].shape, -1), every) for name in NAMES)
    return chunk.cls.take(states_TD), chunk.masked.take(predicted_TD)


def cls_entropies(model: Any, packed: Packed) -> Tensor:
    """As `attention_entropy.cls_entropies`. Raises InputError for a model whose code returns no attention weights."""
    model.set_attn_implementation("eager")
    of_layers = model.base_model(**pad(model, packed).inputs, output_attentions=True, return_dict=True).attentions
    if not of_layers:
        raise InputError(f"attention: a {model.config.model_type} model has no attention weights; set sections to 0")
    # Weights of padding are 0, and so is their summand.
    return torch.stack([torch.special.entr(weight_BHLL[:, :, 0].float()).sum(-1) for weight_BHLL in of_layers], 1)


NAMES = "states", "predicted"


@contextmanager
def _read_states(lm: Any) -> Iterator[dict[str, Tensor]]:
    """Yields a dictionary that a forward pass within the block fills: the backbone's last states, and the input of the
    product with the vocabulary, which is not computed: it would need the most memory."""
    read: dict[str, Tensor] = {}

    def of_backbone(module: nn.Module, inputs: Any, output: Any) -> None:
        read["states"] = output.last_hidden_state

    def of_vocabulary(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        read["predicted"] = inputs[0]
        return (inputs[0][..., :0, :],)

    handles = [
        lm.base_model.register_forward_hook(of_backbone),
        lm.get_output_embeddings().register_forward_pre_hook(of_vocabulary),
    ]
    try:
        yield read
    finally:
        for handle in handles:
            handle.remove()


def check(model: Any, place: str) -> None:
    """Raises InputError unless padding changes no state, and the prediction head, if there is one, is a product with
    the vocabulary's matrix: the model would be used as another one. `place`: for the message. `model`: in evaluation
    mode, on a CPU.
    """
    kind, first = model.config.model_type, (model.config.pad_token_id or 0) + 1
    ids = [np.arange(first, first + length) % model.config.vocab_size for length in (3, 9)]
    try:
        with torch.inference_mode():
            packed = pack(ids, "cpu")
            together_TD = last_states(model, packed, packed.every)
            alone_TD = torch.cat([last_states(model, one, one.every) for one in (pack([row], "cpu") for row in ids)])
            if together_TD.shape != alone_TD.shape or not _are_equal(together_TD, alone_TD):
                raise InputError(
                    f"{place}: a {model.config.model_type} model is not supported: padding changes its vectors"
                )
            if model.get_output_embeddings() is not None:
                _check_head(model, packed, place)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise InputError(f"{place}: a {kind} model is not supported: {reason(error)}") from error


def _check_head(lm: Any, packed: Packed, place: str) -> None:
    inputs, _ = pad(lm, packed)
    with _read_states(lm) as read:
        lm(**inputs, return_dict=True)
    theirs_BLV = lm(**inputs, return_dict=True).logits
    vocabulary = lm.get_output_embeddings()
    if "predicted" not in read or not _are_equal(vocabulary(read["predicted"]).view(theirs_BLV.shape), theirs_BLV):
        raise InputError(f"{place}: the prediction head of a {lm.config.model_type} model is not supported")


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= TOLERANCE * other.abs().max())
