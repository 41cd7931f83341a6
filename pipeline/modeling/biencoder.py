"""The bi-encoder: encodes packed rows, or many rows at once, as vectors.

Shapes: N rows, B rows of a chunk, T tokens of a chunk, D dimensions of the backbone, E of a vector.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.errors import InputError
from pipeline.modeling.frozen import load_frozen
from pipeline.modeling.inputs import Ids, Packed, pack_rows
from pipeline.modeling.model_files.model_config import input_limit_of
from pipeline.modeling.model_files.sentence_transformers_files import Dense, is_tied, read_vector, side
from pipeline.modeling.passes import fill
from pipeline.modeling.transformer import pooled
from pipeline.runtime.precision import autocast
from pipeline.tokenization.token_files import Specials


class Projection(nn.Linear):
    """A map of pooled states to vectors: a linear map, then an activation (sentence-transformers' `Dense`)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False, activation: str = "Identity") -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.activation = activation

    def forward(self, pooled_BD: Tensor) -> Tensor:
        """Returns vectors, [B, E]."""
        activated_BE: Tensor = getattr(nn, self.activation)()(super().forward(pooled_BD))
        return activated_BE

    @property
    def dense(self) -> Dense:
        """The weights and the activation, as its file has them."""
        return Dense(self.weight, self.bias, self.activation)


class Prefix(nn.Module):
    """A map of pooled states to their first numbers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, outputs

    def forward(self, pooled_BD: Tensor) -> Tensor:
        """Returns vectors, [B, E]."""
        return pooled_BD[:, : self.out_features]

    @property
    def dense(self) -> Dense:
        """The same map as weights, for other programs."""
        return Dense(torch.eye(self.out_features, self.in_features))


@dataclass(frozen=True)
class Encoder:
    """A backbone and how its last layer becomes a vector."""

    model: Any
    """A Hugging Face encoder without pooler, such as `BertModel`, or a `FrozenEncoder`."""
    pooling: str
    """`cls` or `mean`."""
    normalise: bool = False
    projection: Projection | Prefix | None = None

    def cut_to(self, dimension: int | None) -> "Encoder":
        """Returns the encoder of the vectors' first `dimension` numbers, normalised if this one normalises; None: all.

        Its weights are those of this encoder.
        """
        projection = cut_projection(self.projection, self.model.config.hidden_size, dimension)
        return self if projection is self.projection else replace(self, projection=projection)

    @property
    def dimension(self) -> int:
        """E."""
        return int(self.projection.out_features if self.projection else self.model.config.hidden_size)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def modules(self) -> nn.ModuleDict:
        """Returns the trained modules."""
        return nn.ModuleDict({"model": self.model} | ({"projection": self.projection} if self.projection else {}))

    def to(self, device: str) -> "Encoder":
        """Moves the weights to `device`; returns this encoder."""
        self.modules().to(torch.device(device))
        return self


def vectors(encoder: Encoder, packed: Packed) -> Tensor:
    """Returns vectors of packed rows, float32 [B, E].

    The projection is computed in float32 on every device.
    """
    with autocast(encoder.device.type):
        pooled_BD = pooled(encoder.model, packed, encoder.pooling)
    vector_BE = encoder.projection(pooled_BD) if encoder.projection else pooled_BD
    return F.normalize(vector_BE, dim=1) if encoder.normalise else vector_BE


def encode_rows(encoder: Encoder, ids: Ids, budget: int, done: Callable[[int], None] | None = None) -> np.ndarray:
    """Returns vectors of rows in their order, float32 [N, E], without gradients.

    Rows of similar length share a forward pass of about `budget` tokens; `done(n)` is called after each pass of n rows.
    """
    vector_NE = np.empty((len(ids), encoder.dimension), np.float32)
    length_N = np.array([len(row) for row in ids], np.int64)
    device = encoder.device.type
    fill(vector_NE, length_N, budget, partial(pack_rows, ids, device=device), partial(vectors, encoder), device, done)
    return vector_NE


def load_encoders(checkpoint: Path) -> tuple[Encoder, Encoder]:
    """Loads the (question, passage) encoders of a checkpoint, on the CPU, dropout off; the same object if tied.

    Their models are those of transformers, to train or to save. Raises InputError if a model cannot be loaded.
    """
    from pipeline.modeling.checkpoint import load_encoder

    return _both(checkpoint, load_encoder)


def frozen_encoders(checkpoint: Path) -> tuple[Encoder, Encoder]:
    """As `load_encoders`, only to encode: loads faster, and gives vectors of the same bytes."""
    return _both(checkpoint, load_frozen)


def _both(checkpoint: Path, load: Callable[[Path], Any]) -> tuple[Encoder, Encoder]:
    question = _encoder(side(checkpoint, "query"), load)
    return question, question if is_tied(checkpoint) else _encoder(side(checkpoint, "passage"), load)


def _encoder(folder: Path, load: Callable[[Path], Any]) -> Encoder:
    vector = read_vector(folder)
    return Encoder(load(folder), vector.pooling, vector.normalise, as_projection(vector.projection))


def cut_projection(
    projection: Projection | Prefix | None, inputs: int, dimension: int | None
) -> Projection | Prefix | None:
    """Returns the map of pooled states of `inputs` numbers to the first `dimension` numbers of `projection`'s vectors.

    The activation is computed for each number alone, so that it needs the first rows of the weights. `projection`
    itself if its vectors are no longer, or `dimension` is None.
    """
    if dimension is None or dimension >= (projection.out_features if projection else inputs):
        return projection
    if not isinstance(projection, Projection):
        return Prefix(inputs, dimension)
    weight_ED, bias_E, activation = projection.dense
    cut = as_projection(Dense(weight_ED[:dimension], None if bias_E is None else bias_E[:dimension], activation))
    assert cut is not None
    return cut.to(weight_ED.device)


def as_projection(dense: Dense | None) -> Projection | None:
    if dense is None:
        return None
    outputs, inputs = dense.weight_ED.shape
    projection = Projection(inputs, outputs, dense.bias_E is not None, dense.activation)
    weights = {"weight": dense.weight_ED} | ({} if dense.bias_E is None else {"bias": dense.bias_E})
    projection.load_state_dict(weights)
    return projection


def compose(map_EE: np.ndarray, dense: Dense | None) -> Dense:
    """Returns one projection, equal to `dense`, which has no activation, followed by the linear map `map_EE`."""
    last_EE = torch.from_numpy(map_EE).double()
    if dense is None:
        return Dense(last_EE.float())
    weight_ED, bias_E = (None if x is None else x.detach().cpu().double() for x in (dense.weight_ED, dense.bias_E))
    assert weight_ED is not None
    return Dense((last_EE @ weight_ED).float(), None if bias_E is None else (last_EE @ bias_E).float())


def check_fits(encoder: Encoder, specials: Specials, folder: Path, field: str, limit: int) -> None:
    """Raises InputError if the model in `folder` has fewer token embeddings than ids, or fewer positions than `limit`.

    `field`: the field of `limit`, the tokens of the longest input.
    """
    known, longest = encoder.model.config.vocab_size, input_limit_of(encoder.model.config)
    if specials.vocab_size > known:
        raise InputError(f"{folder}: {known} token embeddings, but the tokens artifact has {specials.vocab_size} ids")
    if limit > longest:
        raise InputError(f"{field}: {limit} tokens, but the model in {folder} has only {longest} positions")
