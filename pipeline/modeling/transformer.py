"""A backbone with Condenser's head, over packed sequences (Condenser, section 3.1).

The weights are those of a Hugging Face model for masked language modelling, with its names. What depends on its type is
in pipeline/modeling/architectures/.

Shapes: B sequences of T tokens in a chunk, D dimensions, M masked tokens, R rows that are computed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.cross_entropy import cross_entropy
from pipeline.modeling.inputs import Packed
from pipeline.modeling.packing import Chunk, Rows
from pipeline.modeling.post_norm import apply, attention_layout, embed, keys_values, predicted, rest_of_layer

LanguageModel = Any
"""A Hugging Face model for masked language modelling, such as `BertForMaskedLM`."""

Seed = Callable[[int, int], None]
"""seed(layer, part): seeds dropout for a part of a layer."""
EMBEDDINGS, HEAD = 0, 1000
"""Layer numbers for `Seed`: the backbone's layers count from 1, those of a head from HEAD."""
CLS, MASKED = 1, 2
"""Parts of a layer that computes only the needed rows."""


class States(NamedTuple):
    """The backbone's output for a chunk."""

    early_TD: Tensor
    """Output of layer `skip_from`; 0 is the embeddings."""
    cls_BD: Tensor
    """The last layer's output at each sequence's first token, float32."""
    late_MD: Tensor | None
    """The last layer's output at the masked tokens, if requested."""


def backbone(lm: LanguageModel, chunk: Chunk, skip_from: int, seed: Seed, masked: bool = True) -> States:
    """Runs embeddings and layers; the last layer only at the CLS tokens and, if `masked`, the masked tokens.

    The CLS rows go through the last layer separately, with their own dropout: so a first pass that needs only them
    (the gradient cache) drops the same numbers, and gives the same bits on a CPU.
    """
    seed(EMBEDDINGS, 0)
    early_TD = hidden_TD = embed(lm, chunk.ids_T, chunk.position_T)
    *layers, last = architecture(lm).layers(lm)
    every = attention_layout(lm, chunk.every, chunk.every)
    for number, layer in enumerate(layers, start=1):
        seed(number, 0)
        hidden_TD = apply(lm, layer, hidden_TD, every)
        if number == skip_from:
            early_TD = hidden_TD
    number = len(layers) + 1
    hidden_TD, *key_value = keys_values(lm, last, hidden_TD)
    seed(number, CLS)
    at_cls = attention_layout(lm, chunk.cls, chunk.every)
    cls_BD = rest_of_layer(lm, last, hidden_TD[chunk.cls.at_R], key_value, at_cls, float32=True)
    if not masked:
        return States(early_TD, cls_BD, None)
    seed(number, MASKED)
    at_masked = attention_layout(lm, chunk.masked, chunk.every)
    late_MD = rest_of_layer(lm, last, hidden_TD[chunk.masked.at_R], key_value, at_masked)
    return States(early_TD, cls_BD, late_MD)


def last_states(model: Any, packed: Packed, wanted: Rows) -> Tensor:
    """Returns the last layer's states at the rows `wanted`, float32 [R, D]. `model`: with any head or none."""
    hidden_TD = embed(model, packed.ids_T, packed.position_T, packed.type_T)
    *layers, last = architecture(model).layers(model)
    every = attention_layout(model, packed.every, packed.every)
    for layer in layers:
        hidden_TD = apply(model, layer, hidden_TD, every)
    at_wanted = every if wanted.at_R is None else attention_layout(model, wanted, packed.every)
    return apply(model, last, hidden_TD, at_wanted, float32=True)


def prediction_losses(lm: LanguageModel, states_RD: Tensor, label_R: Tensor) -> Tensor:
    """Returns the cross-entropy of the model's own prediction head at each row, [R]."""
    output = lm.get_output_embeddings()
    return cross_entropy(predicted(lm, states_RD), output.weight, output.bias, label_R)


def new_head(lm: LanguageModel, layers: int) -> nn.ModuleList:
    """Returns `layers` layers of the backbone's type, initialised as those of a new backbone."""
    layer = type(architecture(lm).layers(lm)[0])
    return nn.ModuleList(layer(lm.config) for _ in range(layers)).apply(lm._init_weights)
