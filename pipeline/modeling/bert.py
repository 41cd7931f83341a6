"""BERT and RoBERTa, with Condenser's head, as plain functions over packed sequences (Condenser, section 3.1).

The weights are those of a Hugging Face `BertForMaskedLM` or `RobertaForMaskedLM`, under its names.

Shapes: B sequences of T tokens in a chunk, D dimensions, M masked tokens, R rows that are wanted.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline.errors import InputError
from pipeline.modeling.checkpoint import head_objective, load_backbone_for_mlm, load_head
from pipeline.modeling.cross_entropy import cross_entropy
from pipeline.modeling.packing import Chunk, Rows, attend

LanguageModel = Any
"""`BertForMaskedLM` or `RobertaForMaskedLM`."""

Seed = Callable[[int, int], None]
"""Seeds dropout for a place: (layer, part)."""
EMBEDDINGS, HEAD = 0, 1000
"""Places of dropout: backbone layers count from 1, those of a head from HEAD."""
CLS, MASKED = 1, 2
"""Parts of a layer that computes needed rows only."""


class States(NamedTuple):
    """What the backbone makes of a chunk."""

    early_TD: Tensor
    """Output of layer `skip_from`; 0 is the embeddings."""
    cls_BD: Tensor
    """The last layer's output at each sequence's first token, float32."""
    late_MD: Tensor | None
    """The last layer's output at the masked tokens, if asked for."""


def backbone(lm: LanguageModel, chunk: Chunk, skip_from: int, seed: Seed, masked: bool = True) -> States:
    """Runs embeddings and layers; the last one at the CLS tokens and, if `masked`, at the masked ones alone.

    The CLS rows go through the last layer by themselves, with dropout of their own: so a first pass that needs nothing
    else (the gradient cache) gives the same bits.
    """
    seed(EMBEDDINGS, 0)
    early_TD = hidden_TD = embed(lm, chunk.ids_T, chunk.position_T)
    *layers, last = lm.base_model.encoder.layer
    for number, layer in enumerate(layers, start=1):
        seed(number, 0)
        hidden_TD = apply(layer, hidden_TD, chunk.every, chunk.every)
        if number == skip_from:
            early_TD = hidden_TD
    number = len(layers) + 1
    known = keys_values(last, hidden_TD)
    seed(number, CLS)
    cls_BD = rest_of_layer(last, hidden_TD[chunk.cls.at_R], known, chunk.cls, chunk.every)
    if not masked:
        return States(early_TD, cls_BD, None)
    seed(number, MASKED)
    return States(early_TD, cls_BD, rest_of_layer(last, hidden_TD[chunk.masked.at_R], known, chunk.masked, chunk.every))


def embed(lm: LanguageModel, ids_T: Tensor, position_T: Tensor, type_T: Tensor | None = None) -> Tensor:
    """Token, position and type embeddings, normalised, [T, D]. Types are 0 where none are given."""
    place_T, type_1T = positions(lm, position_T), None if type_T is None else type_T[None]
    return lm.base_model.embeddings(input_ids=ids_T[None], token_type_ids=type_1T, position_ids=place_T[None])[0]


def positions(lm: LanguageModel, position_T: Tensor) -> Tensor:
    """Rows of the position table; RoBERTa's begin after its padding id."""
    return position_T + lm.config.pad_token_id + 1 if lm.config.model_type == "roberta" else position_T


def apply(layer: Any, hidden_TD: Tensor, wanted: Rows, every: Rows) -> Tensor:
    """One transformer layer over a packed chunk, at the rows `wanted` of it, [R, D]; all serve as keys and values."""
    asking_RD = hidden_TD if wanted.at_R is None else hidden_TD[wanted.at_R]
    return rest_of_layer(layer, asking_RD, keys_values(layer, hidden_TD), wanted, every)


def keys_values(layer: Any, hidden_TD: Tensor) -> tuple[Tensor, Tensor]:
    """A layer's keys and values, each [T, D]."""
    return layer.attention.self.key(hidden_TD), layer.attention.self.value(hidden_TD)


def rest_of_layer(
    layer: Any,
    asking_RD: Tensor,
    known: tuple[Tensor, Tensor],
    wanted: Rows,
    every: Rows,
    masks: Sequence[Tensor] | None = None,
) -> Tensor:
    """A layer for which keys and values are `known`, [R, D]; queries and residual come from `asking_RD`."""
    own = layer.attention.self
    dropout = own.dropout.p if own.training else 0.0
    context_RD = attend(own.query(asking_RD), *known, wanted, every, own.num_attention_heads, dropout, masks)
    attended_RD = layer.attention.output(context_RD, asking_RD)
    return layer.output(layer.intermediate(attended_RD), attended_RD)


def prediction_losses(lm: LanguageModel, states_RD: Tensor, label_R: Tensor) -> Tensor:
    """Cross-entropy of the model's own prediction head at each row, [R]."""
    if hasattr(lm, "cls"):
        hidden_RD = lm.cls.predictions.transform(states_RD)
    else:
        hidden_RD = lm.lm_head.layer_norm(nn.functional.gelu(lm.lm_head.dense(states_RD)))
    output = lm.get_output_embeddings()
    return cross_entropy(hidden_RD, output.weight, output.bias, label_R)


def new_head(lm: LanguageModel, layers: int) -> nn.ModuleList:
    """`layers` layers of the backbone's own type, with the random weights that a new backbone gets."""
    layer = type(lm.base_model.encoder.layer[0])
    return nn.ModuleList(layer(lm.config) for _ in range(layers)).apply(lm._init_weights)


def with_new_head(start: Path, layers: int, seed: int) -> nn.ModuleDict:
    """{"lm", "head"}: the model of checkpoint `start`, and a random head."""
    lm: LanguageModel = load_backbone_for_mlm(start)
    torch.manual_seed(seed)
    return nn.ModuleDict({"lm": lm, "head": new_head(lm, layers)})


def with_own_head(start: Path, objective: str | None, layers: int | None = None) -> nn.ModuleDict:
    """{"lm", "head"}: the model of checkpoint `start` and its head, trained for `objective` and of so many layers.

    None: whatever head it has; without a file of one, a head of no layers.
    """
    lm: LanguageModel = load_backbone_for_mlm(start)
    path = start / "head.safetensors"
    if objective is None and not path.is_file():
        return nn.ModuleDict({"lm": lm, "head": nn.ModuleList()})
    state = load_head(start)
    if objective is not None and head_objective(start) != objective:
        raise InputError(f"{path}: the head of {head_objective(start)}, but one of {objective} is needed")
    found = len({name.split(".")[0] for name in state})
    if layers is not None and layers != found:
        raise InputError(f"{path}: a head of {found} layers, but condenser.head_layers is {layers}")
    head = new_head(lm, found)
    check_head(head, state, path)
    head.load_state_dict(state)
    return nn.ModuleDict({"lm": lm, "head": head})


def check_head(head: nn.ModuleList, state: Mapping[str, Tensor], path: Path) -> None:
    """InputError unless `state`, read from `path`, holds the head's parameters, by name and shape."""
    expected = {name: x.shape for name, x in head.state_dict().items()}
    if expected != {name: x.shape for name, x in state.items()}:
        raise InputError(f"{path}: not the head of this model's type and size")
