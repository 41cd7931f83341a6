"""The training of a cross-encoder, in a child process (`pipeline.runtime.launch`).

Shapes: Q questions of a batch, N passages of each (the positive first), P = Q * N pairs, B pairs of a chunk.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig, lengths
from pipeline.cross_encoder.lengths import write_lengths
from pipeline.cross_encoder.pairs import CrossEncoder, PairRows, logits, pack_pairs, pair_rows, read_pair_form
from pipeline.finetune import examples
from pipeline.finetune.pools import load_pools
from pipeline.finetune.step import Piece, PreparedBatch, prepare_batch, update_module
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.checkpoint import load_classifier, new_classifier, save_classifier
from pipeline.runtime.ranks import rank
from pipeline.runtime.work import Machine, Metrics, Progress
from pipeline.tokenization.token_files import Tokens
from pipeline.training import loop
from pipeline.training.memory import resolve_auto


def train_cross_encoder(
    *,
    progress: Progress,
    device: str,
    config: dict[str, Any],
    tokens: str,
    start: str,
    pools: str,
    out: str,
    checkpoints: str,
    machine: dict[str, Any],
) -> Metrics:
    """Trains this rank's chunks of every batch's pairs; rank 0 writes the checkpoint."""
    settings = CrossEncoderConfig(**config)
    data, all_pools = Tokens.open(Path(tokens)), load_pools(Path(pools))
    form = read_pair_form(Path(start), lengths(settings), data.specials)
    model = new_classifier(Path(start), settings.seed)
    loop.set_dropout(model, settings.dropout)
    # A constant added to all logits does not change a listwise loss: only rounding errors would move the last bias.
    architecture(model).last_bias(model).requires_grad_(settings.loss == "pointwise")
    model.to(device)  # type: ignore[arg-type]
    machine_settings = resolve_auto(Machine.model_validate(machine), device, model.config, model, most_tokens(settings))
    size = examples.epoch_size(all_pools)
    edges = examples.batches(size, settings.batch_queries)
    epoch_steps = len(edges) - 1
    draw = examples.Draw(settings.negatives_per_query, settings.positives_considered, settings.seed)
    of_group = listwise if settings.loss == "listwise" else pointwise

    def prepare(i: int) -> PreparedBatch:
        epoch, place = divmod(i, epoch_steps)
        indices = examples.epoch_order(settings.seed, epoch, size)[edges[place] : edges[place + 1]]
        batch = examples.draw_batch(all_pools, epoch, indices, draw)
        query_P = batch.queries_Q.repeat(batch.passages_QN.shape[1])
        rows = pair_rows(data, query_P, batch.passages_QN.ravel(), form)
        return prepare_pairs(model, rows, batch.passages_QN.shape, of_group, machine_settings, device)

    def step(i: int, batch: PreparedBatch) -> dict[str, Any]:
        return update(model, batch, machine_settings, (settings.seed, i), device)

    history = loop.train(
        model,
        step,
        settings.epochs * epoch_steps,
        settings.optimiser,
        settings.seed,
        Path(checkpoints),
        machine_settings.checkpoint_minutes,
        progress,
        device,
        prepare=prepare,
    )
    if rank() == 0:
        save_classifier(Path(out), model, Path(start), history)
        write_lengths(lengths(settings), Path(out))
    return loop.history_metrics(history)


def prepare_pairs(
    model: CrossEncoder,
    rows: PairRows,
    shape: tuple[int, int],
    of_group: Callable[[Tensor], Tensor],
    machine: Machine,
    device: str,
) -> PreparedBatch:
    """Packs this rank's pieces of the pairs `rows`.

    `shape`: (Q, N); the pairs of a question follow each other, its positive first. `of_group`: the loss of the logits
    [Q, N].
    """
    length_P = np.array([len(row) for row in rows.ids])
    pack = partial(pack_pairs, model, rows, device=device, bucket=True)
    return prepare_batch(length_P, 0, True, machine, pack, lambda logit_P1: of_group(logit_P1.view(shape)))


def update(
    model: CrossEncoder, batch: PreparedBatch, machine: Machine, key: tuple[int, int], device: str
) -> dict[str, Any]:
    """Forward and backward of one update.

    A logit is a vector of one dimension: each rank computes its own, and gets those of the full batch.
    """

    def score(piece: Piece) -> Tensor:
        return logits(model, batch.packed[piece.number])[:, None]

    return update_module(
        model,
        score,
        batch,
        config=model.config,
        pooling=architecture(model).classifier_pooling(model),
        dimension=1,
        machine=machine,
        key=key,
        device=device,
    )


def take(*, progress: Progress, device: str, config: dict[str, Any], start: str, out: str) -> Metrics:
    """Writes the finished cross-encoder of `config.checkpoint` with the tokenizer of `start`."""
    settings = CrossEncoderConfig(**config)
    assert settings.checkpoint is not None
    save_classifier(Path(out), load_classifier(settings.checkpoint), Path(start))
    write_lengths(lengths(settings), Path(out))
    return {"updates": 0}


def most_tokens(config: CrossEncoderConfig) -> int:
    """Returns a number of tokens that no update exceeds, over all ranks."""
    pairs = config.batch_queries * (1 + config.negatives_per_query)
    return pairs * (config.question_tokens + config.passage_tokens)


def listwise(logit_QN: Tensor) -> Tensor:
    """Returns the mean of -log softmax of the positive's logit over the question's own passages (LCE, equation 3)."""
    return F.cross_entropy(logit_QN, torch.zeros(len(logit_QN), dtype=torch.int64, device=logit_QN.device))


def pointwise(logit_QN: Tensor) -> Tensor:
    """Returns the mean over pairs of the binary cross-entropy of relevance."""
    relevant_QN = torch.zeros_like(logit_QN)
    relevant_QN[:, 0] = 1.0
    return F.binary_cross_entropy_with_logits(logit_QN, relevant_QN)
