"""Encoding with OpenVINO in bfloat16, one thread: what encoding in reduced precision is compared with.

OpenVINO directly, without optimum: the model of the folder is traced and converted in memory. Texts are tokenised
together, sorted by tokens, and padded to the longest of each batch.

It needs the package openvino (extra `bench`).

Shapes: N texts, B of them in a batch, T tokens of the longest in it, D dimensions, E of a vector.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.encode import TEXTS, seen, texts
from benchmarks.paired import Step
from benchmarks.steps import LIMIT
from pipeline.modeling.biencoder import as_projection
from pipeline.modeling.model_files.sentence_transformers_files import read_vector

BATCH = 32
"""Texts of a forward pass (sentence-transformers' default)."""
INPUTS = ("input_ids", "attention_mask")

Encode = Callable[[list[str]], np.ndarray]
"""encode(texts) returns their vectors in the same order, float32 [N, E]."""


class _Pooled(nn.Module):
    """Returns the vectors [B, E] of padded texts, as the model's module files say."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModel

        super().__init__()
        vector = read_vector(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.pooling, self.normalise = vector.pooling, vector.normalise
        self.projection = as_projection(vector.projection)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden_BTD = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "cls":
            pooled_BD = hidden_BTD[:, 0]
        else:
            real_BT1 = attention_mask.unsqueeze(-1).to(hidden_BTD.dtype)
            pooled_BD = (hidden_BTD * real_BT1).sum(1) / real_BT1.sum(1)
        vector_BE = pooled_BD if self.projection is None else self.projection(pooled_BD)
        return nn.functional.normalize(vector_BE, dim=1) if self.normalise else vector_BE


def converted(folder: Path) -> Any:
    """Returns the OpenVINO model of a model folder, float32, from INPUTS to vectors."""
    os.environ["CI"] = "true"  # else OpenVINO's converter sends statistics of its use
    import openvino

    example = dict.fromkeys(INPUTS, torch.ones(2, 8, dtype=torch.int64))
    with torch.no_grad():
        return openvino.convert_model(
            _Pooled(folder), example_input=example, input=[(name, [-1, -1]) for name in INPUTS]
        )


def load(folder: Path, precision: str = "bf16", limit: int = LIMIT) -> Encode:
    """Returns the encoder of a model folder; texts are cut to `limit` tokens, special tokens included.

    `precision`: OpenVINO's INFERENCE_PRECISION_HINT, `bf16` or `f32`. Questions and passages must share the encoder.
    """
    model = converted(folder)
    import openvino
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    dimension = compiled.output(0).partial_shape[1].get_length()

    def encode(given: list[str]) -> np.ndarray:
        ids = tokenizer(given, truncation=True, max_length=limit, return_attention_mask=False)["input_ids"]
        vector_NE = np.empty((len(ids), dimension), np.float32)
        order_N = np.argsort([len(row) for row in ids], kind="stable")
        for first in range(0, len(ids), BATCH):
            row_B = order_N[first : first + BATCH]
            vector_NE[row_B] = compiled(padded([ids[row] for row in row_B], tokenizer.pad_token_id))[0]
        return vector_NE

    return encode


def padded(ids: list[list[int]], pad: int) -> dict[str, np.ndarray]:
    """Returns the inputs of a batch, int64 [B, T]; the longest row is the last."""
    length_B = np.array([len(row) for row in ids])
    real_BT = np.arange(length_B[-1]) < length_B[:, None]
    ids_BT = np.full(real_BT.shape, pad, np.int64)
    ids_BT[real_BT] = np.concatenate(ids)
    return dict(zip(INPUTS, (ids_BT, real_BT.astype(np.int64)), strict=True))


def openvino_bf16(*, shape: str, model: str) -> Step:
    """The way: encodes the texts of `shape` (benchmarks/encode.py) with the model folder `model`."""
    given, encode = texts(TEXTS[shape]), load(Path(model))
    return lambda _: seen(encode(given))


def cosines(a_NE: np.ndarray, b_NE: np.ndarray) -> np.ndarray:
    """Returns the cosine of each row of `a` with that of `b`, [N]."""
    lengths_N = np.linalg.norm(a_NE, axis=1) * np.linalg.norm(b_NE, axis=1)
    return (a_NE * b_NE).sum(1) / lengths_N
