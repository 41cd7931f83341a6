"""ModernBERT (Warner et al. 2024): pre-norm, gated units, rotary positions, global and local attention by turns."""

import copy
from typing import Any

from torch import Tensor, nn

from pipeline.modeling.architectures.architecture import NO_DROPOUT, Architecture, Prediction
from pipeline.modeling.architectures.pre_norm import PreNorm
from pipeline.modeling.layers import Embeddings, Residual
from pipeline.tokenization.token_files import Specials

LOCAL, GLOBAL = "sliding_attention", "full_attention"


def embeddings(model: Any) -> Embeddings:
    own = model.base_model.embeddings
    return Embeddings(own.tok_embeddings, None, None, own.norm, own.drop, first_position=0)


def layers(model: Any) -> nn.ModuleList:
    own: nn.ModuleList = model.base_model.layers
    return own


def layer(layer: Any) -> PreNorm:
    attention, mlp = layer.attn, layer.mlp
    # Without dropout of attention weights it is an identity.
    out_dropout = attention.out_drop if isinstance(attention.out_drop, nn.Dropout) else NO_DROPOUT
    return PreNorm(
        norm=layer.attn_norm if isinstance(layer.attn_norm, nn.LayerNorm) else None,
        query_key_value=attention.Wqkv,
        heads=layer.config.num_attention_heads,
        dropout=attention.attention_dropout if attention.training else 0.0,
        attended=Residual(attention.Wo, layer.mlp_norm, out_dropout),
        inner=mlp.Wi,
        activation=mlp.act,
        inner_dropout=mlp.drop,
        output=mlp.Wo,
        window=layer.config.sliding_window if layer.attention_type == LOCAL else None,
    )


def new_layer(layer: Any, config: Any) -> nn.Module:
    """Returns a layer of global attention that normalises its input, unlike a backbone's first layer."""
    of_head = copy.deepcopy(config)
    of_head.layer_types = [GLOBAL] * config.num_hidden_layers
    new: nn.Module = type(layer)(of_head, layer_idx=1)
    return new


def set_attention_dropout(model: Any, share: float) -> None:
    for attention in (layer.attn for layer in model.base_model.layers):
        attention.attention_dropout = share
        attention.out_drop = nn.Dropout(share)


def fields(shape: dict[str, Any], specials: Specials) -> dict[str, Any]:
    first = {f"{name}_token_id": specials.cls for name in ("bos", "cls")}
    last = {f"{name}_token_id": specials.sep for name in ("eos", "sep")}
    share = shape["hidden_dropout_prob"]
    return {"embedding_dropout": share, "classifier_dropout": share, **first, **last}


def windows(config: Any) -> list[int | None]:
    return [config.sliding_window if kind == LOCAL else None for kind in config.layer_types]


def frequencies(model: Any, window: int | None) -> Tensor:
    own = model.base_model.rotary_emb
    of_kind: Tensor = getattr(own, f"{GLOBAL if window is None else LOCAL}_inv_freq")
    return of_kind


def prediction(lm: Any) -> Prediction:
    return Prediction(lm.head.dense, lm.head.act, lm.head.norm)


def final_norm(model: Any) -> nn.LayerNorm:
    norm: nn.LayerNorm = model.base_model.final_norm
    return norm


def logit(model: Any, pooled_B1D: Tensor) -> Tensor:
    logit_B1: Tensor = model.classifier(model.drop(model.head(pooled_B1D[:, 0])))
    return logit_B1


MODERNBERT = Architecture(
    prediction,
    layers=layers,
    layer=layer,
    new_layer=new_layer,
    embeddings=embeddings,
    windows=windows,
    frequencies=frequencies,
    final_norm=final_norm,
    classifier_pooling=lambda model: str(model.config.classifier_pooling),
    logit=logit,
    last_bias=lambda model: model.classifier.bias,
    set_attention_dropout=set_attention_dropout,
    fields=fields,
    pre_norm=True,
    inner_maps=3,
)
