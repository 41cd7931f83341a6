"""The bi-encoder: input rows, pooled vectors, and encoding many rows at once.

Shapes: N rows, B rows of one forward call, L tokens (padded), D dimension, H heads, E dimension of a head.
A row is the ids of one input, special tokens included, int64 [length].
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.checkpoint import load_encoder, longest_input
from pipeline.errors import InputError
from pipeline.ragged import Specials, Tokens

Rows = Sequence[np.ndarray]


def question_row(text: np.ndarray, specials: Specials, limit: int) -> np.ndarray:
    """`[CLS] text [SEP]`, at most `limit` ids; the text's end is cut."""
    return np.concatenate(([specials.cls], text[: limit - 2], [specials.sep])).astype(np.int64)


def passage_row(title: np.ndarray, text: np.ndarray, specials: Specials, title_limit: int, limit: int) -> np.ndarray:
    """`[CLS] title [SEP] text [SEP]`, at most `limit` ids, the title at most `title_limit`.

    Without a title `[CLS] text [SEP]`, as in pre-training. A title never takes more than half of the row.
    """
    kept = title[: min(title_limit, limit // 2)]
    if not len(kept):
        return question_row(text, specials, limit)
    room = limit - len(kept) - 3
    return np.concatenate(([specials.cls], kept, [specials.sep], text[:room], [specials.sep])).astype(np.int64)


def question_rows(tokens: Tokens, indices: Iterable[int], limit: int) -> list[np.ndarray]:
    """Rows of the questions at `indices` of queries.parquet."""
    return [question_row(tokens.queries[int(i)], tokens.specials, limit) for i in indices]


def passage_rows(tokens: Tokens, indices: Iterable[int], title_limit: int, limit: int) -> list[np.ndarray]:
    """Rows of the passages at `indices` of passages.parquet."""
    return [
        passage_row(tokens.titles[int(i)], tokens.passages[int(i)], tokens.specials, title_limit, limit)
        for i in indices
    ]


@dataclass(frozen=True)
class Encoder:
    """A backbone and what is taken from its last layer."""

    model: Any
    """`BertModel` or `RobertaModel`, without pooler."""
    pooling: str
    """`cls` or `mean`."""

    @property
    def dimension(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: str) -> "Encoder":
        """This encoder, its model moved to `device`."""
        nn.Module.to(self.model, torch.device(device))
        return self


def load_encoders(checkpoint: Path) -> tuple[Encoder, Encoder]:
    """The (question, passage) encoders of a checkpoint, on the CPU, dropout off; the same object where tied.

    Raises InputError for a folder without a loadable model.
    """
    if (checkpoint / "query").is_dir():
        return _load(checkpoint / "query"), _load(checkpoint / "passage")
    encoder = _load(checkpoint)
    return encoder, encoder


def _load(folder: Path) -> Encoder:
    return Encoder(load_encoder(folder), read_pooling(folder / "1_Pooling" / "config.json"))


def read_pooling(path: Path) -> str:
    """`cls` or `mean` from the pooling's configuration for sentence-transformers, else InputError."""
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read, so that the model's pooling is not known: {error}") from error
    flags = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    chosen = [name for name, flag in flags.items() if settings.get(flag) or settings.get("pooling_mode") == name]
    if len(chosen) != 1:
        raise InputError(f"{path}: neither pooling by the CLS token alone nor by the mean alone")
    return chosen[0]


def check_fits(encoder: Encoder, specials: Specials, folder: Path, field: str, limit: int) -> None:
    """Raise InputError where the tokens cannot be those of the model in `folder`, or inputs exceed its positions."""
    known, longest = encoder.model.config.vocab_size, longest_input(encoder.model)
    if specials.vocab_size > known:
        raise InputError(f"{folder}: {known} token embeddings, but the tokens artifact has {specials.vocab_size} ids")
    if limit > longest:
        raise InputError(f"{field}: {limit} tokens asked for, but the model in {folder} has {longest} positions")


def groups(lengths: Sequence[int] | np.ndarray, budget: int) -> list[np.ndarray]:
    """Indices in groups of neighbours by length, each of at most `budget` tokens once padded (or one row)."""
    order = np.argsort(lengths, kind="stable")
    parts, start = [], 0
    for end, index in enumerate(order):
        # Ascending order: the newest row is the longest, so it sets the width of the group.
        if end > start and (end + 1 - start) * int(lengths[index]) > budget:
            parts.append(order[start:end])
            start = end
    if start < len(order):
        parts.append(order[start:])
    return parts


def first_position(layer: Any, hidden_BLD: Tensor, attend_B11L: Tensor | None) -> Tensor:
    """What a BERT or RoBERTa layer gives at the first position, [B, D]; the other positions serve as keys and values.

    `attend_B11L`: which positions are real, bool; None where all are.
    """
    own, first_B1D = layer.attention.self, hidden_BLD[:, :1]

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (own.num_attention_heads, -1)).transpose(1, 2)

    context_BH1E = F.scaled_dot_product_attention(
        heads(own.query(first_B1D)),
        heads(own.key(hidden_BLD)),
        heads(own.value(hidden_BLD)),
        attn_mask=attend_B11L,
        dropout_p=own.dropout.p if own.training else 0.0,
    )
    attended_B1D = layer.attention.output(context_BH1E.transpose(1, 2).flatten(2), first_B1D)
    return layer.output(layer.intermediate(attended_B1D), attended_B1D)[:, 0]


def mean(hidden_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Mean over real positions, [B, D]."""
    weights_BL1 = mask_BL[:, :, None].to(hidden_BLD.dtype)
    return (hidden_BLD * weights_BL1).sum(1) / weights_BL1.sum(1)


def represent(encoder: Encoder, rows: Rows, budget: int, done: Callable[[int], None] | None = None) -> Tensor:
    """Vectors of `rows` in their order, [N, D], with a graph where gradients are on.

    Rows of like length share a forward call of about `budget` tokens; `done` is told how many each call finished.
    """
    if not rows:
        return torch.zeros(0, encoder.dimension, device=encoder.device)
    parts = groups([len(row) for row in rows], budget)
    vectors = []
    for part in parts:
        vectors.append(_forward(encoder, [rows[i] for i in part]))
        if done is not None:
            done(len(part))
    place = np.argsort(np.concatenate(parts))
    return torch.cat(vectors)[torch.from_numpy(place).to(encoder.device)]


def _forward(encoder: Encoder, rows: Rows) -> Tensor:
    lengths = np.array([len(row) for row in rows])
    mask_BL = np.arange(lengths.max()) < lengths[:, None]
    ids_BL = np.full(mask_BL.shape, encoder.model.config.pad_token_id or 0)
    ids_BL[mask_BL] = np.concatenate(rows)
    mask = torch.from_numpy(mask_BL).to(encoder.device)
    # Without a mask attention takes its fastest path.
    attend_B11L = None if mask_BL.all() else mask[:, None, None, :]
    *layers, last = encoder.model.encoder.layer
    hidden_BLD = encoder.model.embeddings(input_ids=torch.from_numpy(ids_BL).to(encoder.device))
    for layer in layers:
        hidden_BLD = layer(hidden_BLD, attend_B11L)
    if encoder.pooling == "cls":
        return first_position(last, hidden_BLD, attend_B11L)
    return mean(last(hidden_BLD, attend_B11L), mask)


def encode_rows(encoder: Encoder, rows: Rows, budget: int, done: Callable[[int], None] | None = None) -> np.ndarray:
    """Vectors of `rows` in their order, float32 [N, D], without gradients."""
    with torch.inference_mode():
        return represent(encoder, rows, budget, done).float().cpu().numpy()
