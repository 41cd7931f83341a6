"""What an architecture is: where its Hugging Face modules have the parts that all architectures share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from pipeline.modeling.architectures.post_norm import PostNorm
from pipeline.modeling.architectures.pre_norm import PreNorm
from pipeline.modeling.layers import Embeddings, Residual
from pipeline.tokenization.token_files import Specials

Layer = PostNorm | PreNorm
NO_DROPOUT = nn.Dropout(0.0)


class Prediction(NamedTuple):
    """The head for masked language modelling, up to the product with the vocabulary: norm(activation(dense(x)))."""

    dense: nn.Linear
    activation: Callable[[Tensor], Tensor]
    norm: nn.LayerNorm


def bert_layers(model: Any) -> nn.ModuleList:
    """Returns the layers of a model with BERT's names."""
    layers: nn.ModuleList = model.base_model.encoder.layer
    return layers


def bert_embeddings(model: Any) -> Embeddings:
    """Returns the embeddings of a model with BERT's names."""
    own = model.base_model.embeddings
    tables = own.word_embeddings, own.token_type_embeddings, own.position_embeddings
    return Embeddings(*tables, own.LayerNorm, own.dropout, first_position=0)


def bert_layer(layer: Any) -> PostNorm:
    """Returns the parts of a layer with BERT's names."""
    own, attended, output = layer.attention.self, layer.attention.output, layer.output
    return PostNorm(
        query=own.query,
        key=own.key,
        value=own.value,
        heads=own.num_attention_heads,
        dropout=weights_dropout(own.dropout),
        attended=Residual(attended.dense, attended.LayerNorm, attended.dropout),
        inner=layer.intermediate.dense,
        activation=layer.intermediate.intermediate_act_fn,
        output=Residual(output.dense, output.LayerNorm, output.dropout),
    )


def weights_dropout(dropout: nn.Dropout) -> float:
    """Returns the probability in the module's present mode."""
    return dropout.p if dropout.training else 0.0


def all_global(config: Any) -> list[int | None]:
    """Returns the windows of layers whose tokens all attend to each other."""
    return [None] * config.num_hidden_layers


def head_logit(model: Any, cls_B1D: Tensor) -> Tensor:
    """Returns the logit of a classifier that is one module, [B, 1]."""
    logit_B1: Tensor = model.classifier(cls_B1D)
    return logit_B1


@dataclass(frozen=True)
class Architecture:
    """Functions of Hugging Face's modules; `model`: with or without a head, or a `FrozenEncoder`.

    The defaults are those of several architectures.
    """

    prediction: Callable[[Any], Prediction] | None
    """Of a model for masked language modelling. None: texts are padded (pipeline/modeling/padded.py), and `layers`,
    `layer` and `embeddings` are not known."""
    layers: Callable[[Any], nn.ModuleList] = bert_layers
    """Of a model."""
    layer: Callable[[Any], Layer] = bert_layer
    """The parts of one of `layers`, or of a head's layer of the same type."""
    new_layer: Callable[[nn.Module, Any], nn.Module] = lambda layer, config: type(layer)(config)
    """new_layer(one of `layers`, the model's configuration): a new layer for a head of the model."""
    embeddings: Callable[[Any], Embeddings] = bert_embeddings
    """Of a model."""
    embedding_map: Callable[[Any], nn.Linear | None] = lambda model: None
    """The map from the embeddings' to the layers' dimensions, if these differ."""
    score_bias: Callable[[Any, Tensor, int], Tensor] | None = None
    """score_bias(model, positions [n, W], L): is added to the attention scores of queries at these positions and L
    keys, [n, heads, W, L]. None: nothing is added."""
    windows: Callable[[Any], list[int | None]] = all_global
    """Each layer's `window`, by the model's configuration."""
    frequencies: Callable[[Any, int | None], Tensor] | None = None
    """frequencies(model, window): of rotary positions (Su et al. 2021) in layers of this window, [half of a head's
    dimensions]. None: positions are embedded."""
    final_norm: Callable[[Any], nn.LayerNorm | None] = lambda model: None
    """Of the last layer's output; None if the layers normalise it."""
    pre_norm: bool = False
    """Whether layers normalise their input instead of their output."""
    inner_maps: int = 2
    """Maps between a layer's D and inner dimensions; 3 with gated units."""
    classifier_pooling: Callable[[Any], str] = lambda model: "cls"
    """What a classifier reads of a text: `cls` or `mean`."""
    logit: Callable[[Any, Tensor], Tensor] = head_logit
    """logit(model for sequence classification, pooled last states [B, 1, D]), [B, 1]."""
    last_bias: Callable[[Any], nn.Parameter] = lambda model: model.classifier.out_proj.bias
    """The bias that is added to every logit."""
    set_attention_dropout: Callable[[Any, float], None] = lambda model, share: None
    """set_attention_dropout(model, probability): for attention whose probability is that of no `nn.Dropout`."""
    fields: Callable[[dict[str, Any], Specials], dict[str, Any]] = lambda shape, specials: {}
    """fields(shape, special tokens): further fields of a new model's configuration; `shape`: BERT's names."""

    @property
    def is_packed(self) -> bool:
        """Whether texts are packed without padding, and the last layer computes only the needed rows."""
        return self.prediction is not None
