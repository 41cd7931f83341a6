"""Condenser as plain functions over a Hugging Face `BertForMaskedLM` or `RobertaForMaskedLM` (Condenser, section 3.1).

Shapes: B sequences, L tokens of each (padding included), D dimensions, M masked tokens, V vocabulary.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline.checkpoint import load_backbone_for_mlm, load_head
from pipeline.errors import InputError

LanguageModel = Any
"""`BertForMaskedLM` or `RobertaForMaskedLM`."""


class States(NamedTuple):
    """What the backbone makes of a batch."""

    early_BLD: Tensor
    """Output of layer `skip_from`; 0 is the embeddings."""
    late_BLD: Tensor
    """Output of the last layer; late_BLD[:, 0] is the CLS vector."""


def backbone(lm: LanguageModel, ids_BL: Tensor, attention_BL: Tensor | None, skip_from: int) -> States:
    """Runs embeddings and layers. `attention_BL`: which tokens are real, bool; None where all are."""
    base = lm.base_model
    early_BLD = late_BLD = base.embeddings(input_ids=ids_BL)
    for number, layer in enumerate(base.encoder.layer, start=1):
        late_BLD = layer(late_BLD, broadcast(attention_BL))
        if number == skip_from:
            early_BLD = late_BLD
    return States(early_BLD, late_BLD)


def condense(head: Any, states: States, attention_BL: Tensor | None) -> Tensor:
    """The head's output [B, L, D]: its layers over [late CLS ; early tokens]."""
    head_BLD = torch.cat([states.late_BLD[:, :1], states.early_BLD[:, 1:]], dim=1)
    for layer in head:
        head_BLD = layer(head_BLD, broadcast(attention_BL))
    return head_BLD


def predict(lm: LanguageModel, states_MD: Tensor) -> Tensor:
    """Logits [M, V] of the language model's own prediction head."""
    return (lm.cls if hasattr(lm, "cls") else lm.lm_head)(states_MD)


def rows(states_BLD: Tensor, at_M: Tensor) -> Tensor:
    """The states at flat positions b * L + l, [M, D]."""
    return states_BLD.flatten(0, 1).index_select(0, at_M)


def broadcast(attention_BL: Tensor | None) -> Tensor | None:
    return None if attention_BL is None else attention_BL[:, None, None, :]


def new_head(lm: LanguageModel, layers: int) -> nn.ModuleList:
    """`layers` layers of the backbone's own type, with the random weights that a new backbone gets."""
    layer = type(lm.base_model.encoder.layer[0])
    return nn.ModuleList(layer(lm.config) for _ in range(layers)).apply(lm._init_weights)


def load(start: Path, head_layers: int | None, seed: int) -> nn.ModuleDict:
    """{"lm", "head"} of checkpoint `start`, with `head_layers` random layers, or with the start's own head if None."""
    lm: LanguageModel = load_backbone_for_mlm(start)
    torch.manual_seed(seed)
    if head_layers is not None:
        return nn.ModuleDict({"lm": lm, "head": new_head(lm, head_layers)})
    state = load_head(start)
    head = new_head(lm, len({name.split(".")[0] for name in state}))
    check_head(head, state, start)
    head.load_state_dict(state)
    return nn.ModuleDict({"lm": lm, "head": head})


def check_head(head: nn.ModuleList, state: Mapping[str, Tensor], folder: Path) -> None:
    """InputError unless `state` holds the head's parameters, by name and shape."""
    expected = {name: x.shape for name, x in head.state_dict().items()}
    if expected != {name: x.shape for name, x in state.items()}:
        raise InputError(f"{folder / 'head.safetensors'}: not the head of this model's type and size")
