"""Writes an encoder as one ONNX graph, from a padded batch of token ids to final vectors.

Shapes: B texts, L tokens of the longest, D dimensions of the backbone, H heads, E dimensions of a vector.
"""

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import InputError
from pipeline.modeling.architectures.architecture import Layer
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.biencoder import Encoder
from pipeline.modeling.packed_layers import Rotation, Rotations, embed, final_norm, rotate, rotation

OPSET = 20
"""The first version with GELU as one node. ONNX Runtime supports it since 1.17."""
INPUTS, OUTPUT = ("input_ids", "attention_mask"), "vector"


class Graph(nn.Module):
    """Computes `pipeline.modeling.biencoder.vectors` for padded rows instead of packed ones.

    Padding is at the end. With CLS pooling the last layer runs only on the first tokens.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.parts = encoder.modules()
        self.pooling, self.normalise = encoder.pooling, encoder.normalise

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps int64 [B, L] and [B, L] (1: a token, 0: padding) to float32 [B, E]."""
        model: Any = self.parts["model"]
        ids_BL, kept_BL1 = input_ids, attention_mask[:, :, None].float()
        own = architecture(model)
        if not own.is_packed:
            return self.of_states(model(input_ids, attention_mask).last_hidden_state, kept_BL1)
        place_1L = torch.arange(ids_BL.shape[1])[None]
        hidden_BLD = embed(model, ids_BL, place_1L)
        hidden_from_B11L = (1 - kept_BL1)[:, None, None, :, 0] * torch.finfo(torch.float32).min
        *layers, last = (own.layer(layer) for layer in own.layers(model))
        windows = {layer.window for layer in (*layers, last)}
        added = {window: self.added(hidden_from_B11L, place_1L, window) for window in windows}
        rotations = {window: self.rotations(place_1L, window) for window in windows}
        for layer in layers:
            hidden_BLD = apply(layer, hidden_BLD, hidden_BLD, added[layer.window], rotations[layer.window])
        if self.pooling == "cls":
            of_first = self.added(hidden_from_B11L, place_1L[:, :1], last.window)
            first_B1D = apply(last, hidden_BLD[:, :1], hidden_BLD, of_first, rotations[last.window])
            return self.of_states(final_norm(model, first_B1D), kept_BL1)
        last_BLD = apply(last, hidden_BLD, hidden_BLD, added[last.window], rotations[last.window])
        return self.of_states(final_norm(model, last_BLD), kept_BL1)

    def of_states(self, last_BLD: Tensor, kept_BL1: Tensor) -> Tensor:
        """Returns the vectors of the last states; of the first tokens' alone with CLS pooling."""
        pooled_BD = last_BLD[:, 0] if self.pooling == "cls" else (last_BLD * kept_BL1).sum(1) / kept_BL1.sum(1)
        vector_BE = self.parts["projection"](pooled_BD) if "projection" in self.parts else pooled_BD
        return nn.functional.normalize(vector_BE, dim=1) if self.normalise else vector_BE

    def added(self, hidden_from_B11L: Tensor, place_1R: Tensor, window: int | None) -> Tensor:
        """Returns the summand of the attention scores of queries at these places, [B, 1 or H, 1 or R, L]."""
        model, length = self.parts["model"], hidden_from_B11L.shape[-1]
        added_BHRL = hidden_from_B11L
        if window is not None:
            far_1RL = (place_1R[..., None] - torch.arange(length)).abs() > window
            # The sum of two of the lowest numbers would be -inf, and a row of padding would have no key.
            lowest = torch.finfo(torch.float32).min
            added_BHRL = torch.minimum(added_BHRL, far_1RL[:, None].float() * lowest)
        score_bias = architecture(model).score_bias
        return added_BHRL if score_bias is None else added_BHRL + score_bias(model, place_1R, length)

    def rotations(self, place_1L: Tensor, window: int | None) -> Rotations | None:
        """Returns the rotations of the queries and keys at these places in layers of this window."""
        model = self.parts["model"]
        if architecture(model).frequencies is None:
            return None
        of_every = rotation(model, window, place_1L)
        return Rotations(of_every, of_every)


def apply(layer: Layer, queries_BRD: Tensor, hidden_BLD: Tensor, added: Tensor, rotations: Rotations | None) -> Tensor:
    """Runs one transformer layer for its first R tokens, [B, R, D]; `added` is added to the attention scores."""

    def heads(x_BLD: Tensor) -> Tensor:
        return x_BLD.unflatten(-1, (layer.heads, -1)).transpose(1, 2)

    _, query_BRD = layer.queries(queries_BRD)
    _, key_BLD, value_BLD = layer.keys_values(hidden_BLD)
    if rotations is not None:
        of_first = Rotation(*(x_1Ld[:, : queries_BRD.shape[1]] for x_1Ld in rotations.queries))
        query_BRD, key_BLD = rotate(rotations._replace(queries=of_first), query_BRD, key_BLD)
    query, key, value = heads(query_BRD), heads(key_BLD), heads(value_BLD)
    weight_BHRL = (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + added).softmax(-1)
    return layer.after_attention((weight_BHRL @ value).transpose(1, 2).flatten(2), queries_BRD)


def write_graph(encoder: Encoder, path: Path) -> None:
    """Writes the encoder as ONNX, float32, for any batch and length. Equal encoders give equal bytes."""
    import onnx

    ids = torch.ones(2, 8, dtype=torch.int64)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                Graph(encoder).eval(),
                (ids, torch.ones_like(ids)),
                input_names=INPUTS,
                output_names=[OUTPUT],
                dynamic_shapes=dict.fromkeys(INPUTS, axes),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:  # transformers' code may branch on values
            raise InputError(f"onnx: PyTorch cannot export a {encoder.model.config.model_type} model") from error
    if program is None:
        raise RuntimeError("torch returned no ONNX program")
    model = program.model_proto
    _remove_metadata(model)
    onnx.save_model(model, str(path))


def _remove_metadata(model: Any) -> None:
    """Removes the source lines, with paths of this machine, that the exporter stores in each node.

    It also removes intermediate shapes: for transposed weights the exporter stores the old shapes, which checkers
    reject.
    """
    graph = model.graph
    del graph.value_info[:]
    parts: Iterable[Sequence[Any]] = (graph.node, graph.input, graph.output, graph.initializer)
    for part in [model, graph, *(one for several in parts for one in several)]:
        del part.metadata_props[:]
        part.doc_string = ""


@contextmanager
def quiet() -> Iterator[None]:
    """Silences log messages and warnings of torch and onnxruntime."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
