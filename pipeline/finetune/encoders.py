"""The trained model of fine-tuning: the two encoders of a bi-encoder, or one for both sides."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from pipeline.errors import InputError
from pipeline.finetune.config import FinetuneConfig
from pipeline.modeling.biencoder import Encoder, Projection, check_fits, encode_rows, load_encoders
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import Ids
from pipeline.modeling.model_files.sentence_transformers_files import Vector
from pipeline.modeling.packing import to_device, upload
from pipeline.runtime.ranks import rank, sum_over_ranks, world
from pipeline.tokenization.token_files import Tokens
from pipeline.training.loop import set_dropout


class Towers(NamedTuple):
    """A two-tower encoder in training."""

    encoders: tuple[Encoder, Encoder]
    """Of questions and of passages; the same object if tied."""
    scorer: nn.Linear | None
    """W and b of learning to rank."""

    @property
    def tied(self) -> bool:
        return self.encoders[0] is self.encoders[1]

    @property
    def trained(self) -> nn.ModuleList:
        parts: list[nn.Module] = [one.modules() for one in self.encoders[: 1 if self.tied else 2]]
        return nn.ModuleList(parts + ([self.scorer] if self.scorer else []))


def starting_towers(start: Path, config: FinetuneConfig, encoder: EncoderConfig, data: Tokens, device: str) -> Towers:
    """Loads the encoders of checkpoint `start`, with a new projection or scorer if the recipe needs one.

    Raises InputError if `start` holds two encoders for a tied configuration, or does not fit the tokens or lengths.
    """
    loaded = load_encoders(start)
    if encoder.tied and loaded[0] is not loaded[1]:
        raise InputError(f"encoder.tied: {start} holds two encoders (`query/` and `passage/`); set it to false")
    check_fits(loaded[0], data.specials, start, "encoder.question_tokens", encoder.question_tokens)
    check_fits(loaded[1], data.specials, start, "passage_tokens", config.passage_tokens)
    torch.manual_seed(config.seed)
    questions = passages = _prepared(loaded[0], config, encoder)
    if not encoder.tied:
        passages = _prepared(replace(loaded[1], model=copy.deepcopy(loaded[1].model)), config, encoder)
        if loaded[1].projection is None and questions.projection:  # both start equal
            passages = replace(passages, projection=copy.deepcopy(questions.projection))
    if encoder.dimensions is not None and encoder.dimensions[0] != questions.dimension:
        first = f"encoder.dimensions: the first ({encoder.dimensions[0]})"
        raise InputError(
            f"{first} must be the whole vector, of {questions.dimension} numbers with the model in {start}"
        )
    needs_scorer = config.loss == "learning_to_rank"
    scorer = nn.Linear(2 * questions.dimension, 1).to(device) if needs_scorer else None
    return Towers((questions.to(device), passages.to(device)), scorer)


def _prepared(loaded: Encoder, config: FinetuneConfig, encoder: EncoderConfig) -> Encoder:
    set_dropout(loaded.model, config.dropout)
    projection = loaded.projection
    if encoder.projection and (projection is None or projection.out_features != encoder.projection):
        projection = Projection(loaded.model.config.hidden_size, encoder.projection)
    return Encoder(loaded.model, encoder.pooling, encoder.normalise, projection if encoder.projection else None)


def encode_all(encoder: Encoder, ids: Ids, budget: int, done: Callable[[int], None] | None = None) -> Tensor:
    """Returns vectors of all rows without dropout, float32 [N, E], equal on all ranks; each rank encodes its share.

    `done(n)` is called after each pass of n rows of this rank.
    """
    vector_NE = torch.zeros(len(ids), encoder.dimension, device=encoder.device)
    mine = np.arange(rank(), len(ids), world())
    encoder.model.eval()
    vectors = encode_rows(encoder, [ids[i] for i in mine.tolist()], budget, done)
    encoder.model.train()
    vector_NE[to_device(mine, encoder.device.type)] = upload(vectors, encoder.device.type)
    return sum_over_ranks(vector_NE)


def write_checkpoint(
    out: Path, towers: Towers, config: EncoderConfig, start: Path, history: list[dict[str, float]]
) -> None:
    """Writes the trained model, or both under `query/` and `passage/`, with the tokenizer of `start`.

    For learning to rank, `scorer.safetensors` in `out` holds W and b.
    """
    pairs = [(out, towers.encoders[0])]
    if not config.tied:
        pairs = list(zip((out / "query", out / "passage"), towers.encoders, strict=True))
    for folder, encoder in pairs:
        tokenizer = start / folder.name if (start / folder.name).is_dir() and not config.tied else start
        vector = Vector(
            config.pooling,
            config.normalise,
            encoder.projection.dense if encoder.projection else None,
            config.question_prefix,
            config.passage_prefix,
        )
        save_checkpoint(folder, encoder.model, tokenizer, history=history, vector=vector)
    if towers.scorer:
        state = {name: x.detach().cpu() for name, x in towers.scorer.state_dict().items()}
        (out / "scorer.safetensors").write_bytes(to_bytes(state))
