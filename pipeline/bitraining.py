"""The training of a bi-encoder, in a process of its own (`pipeline.launch`).

Shapes: Q questions of a batch, N passages of each, P = Q * N, R = Q + P rows, E dimensions of a vector.
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline import examples, flops, ranking, training
from pipeline.biencoder import Encoder, check_fits, load_encoders, vectors
from pipeline.checkpoint import Vector, save_checkpoint
from pipeline.distributed import rank, world
from pipeline.encoder import EncoderConfig
from pipeline.errors import InputError
from pipeline.finetune import FinetuneConfig
from pipeline.inbatch import Piece, backward, pieces
from pipeline.inputs import pack, passage_rows, question_rows, read_form
from pipeline.memory import keeps
from pipeline.ragged import Tokens
from pipeline.work import Machine, Metrics, Progress


def train(
    *,
    progress: Progress,
    device: str,
    config: dict[str, Any],
    encoder: dict[str, Any],
    tokens: str,
    start: str,
    pools: str,
    out: str,
    checkpoints: str,
    machine: dict[str, Any],
) -> Metrics:
    """What each rank runs: its pieces of every batch; rank 0 writes the checkpoint."""
    c, e, how = FinetuneConfig(**config), EncoderConfig(**encoder), Machine.model_validate(machine)
    data, drawn_from = Tokens.open(Path(tokens)), examples.load_pools(Path(pools))
    form = read_form(e, Path(start), data.specials)
    encoders = starting_encoders(Path(start), c, e, data, device)
    trained = nn.ModuleList([encoders[0].modules()] if e.tied else [one.modules() for one in encoders])
    size = examples.epoch_size(drawn_from)
    edges = examples.batches(size, c.batch_queries)
    epoch_steps = len(edges) - 1
    draw = examples.Draw(c.negatives_per_query, c.positives_considered, c.seed)
    shape = encoders[0].model.config

    def step(i: int) -> dict[str, Any]:
        epoch, place = divmod(i, epoch_steps)
        indices = examples.order(c.seed, epoch, size)[edges[place] : edges[place + 1]]
        batch = examples.batch(drawn_from, epoch, indices, draw)
        questions = len(batch.queries_Q)
        ids = question_rows(data, batch.queries_Q, form)
        ids += passage_rows(data, batch.passages_QN.ravel(), form, c.passage_tokens)
        length_R = np.array([len(row) for row in ids])
        given = pieces(length_R, questions, e.tied, how.chunk_spans, how.token_budget)
        of_rank = [int(length_R[piece.row_B].sum()) for piece in given]
        keep = keeps(shape, len(given), sum(of_rank), int(length_R.max()), how.cache, device)

        operations = 0.0

        def encode(piece: Piece) -> Tensor:
            nonlocal operations
            # The piece is the key, so that neither ranks nor a second pass change dropout.
            training.seed_dropout(c.optimiser.seed, i, piece.side, piece.number)
            packed = pack([ids[row] for row in piece.row_B], device)
            if torch.is_grad_enabled():
                wanted = packed.first if e.pooling == "cls" else packed.every
                operations += flops.BACKWARD * flops.encoder(shape, wanted, packed.every)
            return vectors(encoders[piece.side], packed)

        excluded_QP = torch.from_numpy(exclusions(batch, c)).to(device)

        def loss(vectors_RE: Tensor) -> Tensor:
            return ranking.contrastive(vectors_RE[:questions], vectors_RE[questions:], excluded_QP, c.temperature)

        value = backward(encode, given, (len(ids), encoders[0].dimension), loss, keep, device)
        return {"loss": value / world(), "tokens": float(sum(of_rank)), "operations": operations}

    history = training.train(
        trained, step, c.epochs * epoch_steps, c.optimiser, Path(checkpoints), how.checkpoint_minutes, progress, device
    )
    if rank() == 0:
        write_checkpoint(Path(out), encoders, e, Path(start), history)
    return training.summary(history)


def exclusions(batch: examples.Batch, config: FinetuneConfig) -> np.ndarray:
    """Passages that a question's softmax leaves out, bool [Q, P]."""
    excluded_QP = batch.excluded_QP if config.mask_positives else np.zeros_like(batch.excluded_QP)
    questions, own = batch.passages_QN.shape
    if config.share_negatives:
        group_Q = np.arange(questions) // config.share_negatives
        excluded_QP = excluded_QP | (group_Q[:, None] != group_Q.repeat(own))
    return excluded_QP


def starting_encoders(
    start: Path, config: FinetuneConfig, encoder: EncoderConfig, data: Tokens, device: str
) -> tuple[Encoder, Encoder]:
    """The (question, passage) encoders that training starts from; the same object where tied."""
    loaded = load_encoders(start)
    if encoder.tied and loaded[0] is not loaded[1]:
        raise InputError(f"encoder.tied: {start} holds two encoders (`query/` and `passage/`); set it to false")
    check_fits(loaded[0], data.specials, start, "encoder.question_tokens", encoder.question_tokens)
    check_fits(loaded[1], data.specials, start, "passage_tokens", config.passage_tokens)
    torch.manual_seed(config.seed)
    questions = _prepared(loaded[0], config, encoder).to(device)
    if encoder.tied:
        return questions, questions
    passages = _prepared(replace(loaded[1], model=copy.deepcopy(loaded[1].model)), config, encoder)
    if loaded[1].projection is None and questions.projection:  # both start equal
        passages = replace(passages, projection=copy.deepcopy(questions.projection))
    return questions, passages.to(device)


def _prepared(loaded: Encoder, config: FinetuneConfig, encoder: EncoderConfig) -> Encoder:
    for layer in loaded.model.modules():
        if config.dropout is not None and isinstance(layer, nn.Dropout):
            layer.p = config.dropout
    projection = loaded.projection
    if encoder.projection and (projection is None or projection.out_features != encoder.projection):
        projection = nn.Linear(loaded.model.config.hidden_size, encoder.projection, bias=False)
    return Encoder(loaded.model, encoder.pooling, encoder.normalise, projection if encoder.projection else None)


def write_checkpoint(
    out: Path,
    encoders: tuple[Encoder, Encoder],
    config: EncoderConfig,
    start: Path,
    history: list[dict[str, float]],
) -> None:
    """Write the trained model, or both under `query/` and `passage/`, with the tokenizer of `start`."""
    pairs = [(out, encoders[0])]
    if not config.tied:
        pairs = list(zip((out / "query", out / "passage"), encoders, strict=True))
    for folder, encoder in pairs:
        tokenizer = start / folder.name if (start / folder.name).is_dir() and not config.tied else start
        vector = Vector(
            config.pooling,
            config.normalise,
            encoder.projection.weight if encoder.projection else None,
            config.question_prefix,
            config.passage_prefix,
        )
        save_checkpoint(folder, encoder.model, tokenizer, history=history, vector=vector)
