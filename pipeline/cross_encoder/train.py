"""The training of a cross-encoder, in a process of its own (`pipeline.runtime.launch`).

Shapes: Q questions of a batch, N passages of each (the positive first), P = Q * N pairs, B pairs of a chunk.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig, lengths
from pipeline.cross_encoder.lengths import write_lengths
from pipeline.cross_encoder.pairs import CrossEncoder, logits, pack_pairs, pair_rows, read_pair_form
from pipeline.finetune import examples
from pipeline.finetune.pools import load_pools
from pipeline.finetune.step import Piece, backward, pieces
from pipeline.modeling.checkpoint import load_classifier, new_classifier, save_classifier
from pipeline.runtime.ranks import rank, world
from pipeline.runtime.work import Machine, Metrics, Progress
from pipeline.tokenization.token_files import Tokens
from pipeline.training import flops, loop
from pipeline.training.memory import keeps


def train(
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
    """What each rank runs: its chunks of every batch's pairs; rank 0 writes the checkpoint."""
    c, how = CrossEncoderConfig(**config), Machine.model_validate(machine)
    data, drawn_from = Tokens.open(Path(tokens)), load_pools(Path(pools))
    form = read_pair_form(Path(start), lengths(c), data.specials)
    model = new_classifier(Path(start), c.seed)
    loop.set_dropout(model, c.dropout)
    # A listwise loss does not see what is added to all logits: rounding errors alone would move the last bias.
    last_bias(model).requires_grad_(c.loss == "pointwise")
    model.to(device)  # type: ignore[arg-type]
    size = examples.epoch_size(drawn_from)
    edges = examples.batches(size, c.batch_queries)
    epoch_steps = len(edges) - 1
    draw = examples.Draw(c.negatives_per_query, c.positives_considered, c.seed)
    of_group = listwise if c.loss == "listwise" else pointwise

    def step(i: int) -> dict[str, Any]:
        epoch, place = divmod(i, epoch_steps)
        indices = examples.order(c.seed, epoch, size)[edges[place] : edges[place + 1]]
        batch = examples.batch(drawn_from, epoch, indices, draw)
        query_P = batch.queries_Q.repeat(batch.passages_QN.shape[1])
        rows = pair_rows(data, query_P, batch.passages_QN.ravel(), form)
        length_P = np.array([len(row) for row in rows.ids])
        given = pieces(length_P, 0, True, how.chunk_spans, how.token_budget)
        of_rank = [int(length_P[piece.row_B].sum()) for piece in given]
        keep = keeps(model.config, len(given), sum(of_rank), int(length_P.max()), how.cache, device)
        operations = 0.0

        def score(piece: Piece) -> Tensor:
            nonlocal operations
            # The piece is the key, so that neither ranks nor a second pass change dropout.
            loop.seed_dropout(c.optimiser.seed, i, piece.number)
            packed = pack_pairs(model, rows, piece.row_B, device)
            if torch.is_grad_enabled():
                operations += flops.BACKWARD * flops.encoder(model.config, packed.first, packed.every)
            return logits(model, packed)[:, None]

        def loss(logit_P1: Tensor) -> Tensor:
            return of_group(logit_P1.view(batch.passages_QN.shape))

        # A logit is a vector of one dimension: each rank computes its own, all see the whole batch's.
        value = backward(score, given, (len(rows.ids), 1), loss, keep, device)
        return {"loss": value / world(), "tokens": float(sum(of_rank)), "operations": operations}

    history = loop.train(
        model, step, c.epochs * epoch_steps, c.optimiser, Path(checkpoints), how.checkpoint_minutes, progress, device
    )
    if rank() == 0:
        save_classifier(Path(out), model, Path(start), history)
        write_lengths(lengths(c), Path(out))
    return loop.summary(history)


def take(*, progress: Progress, device: str, config: dict[str, Any], start: str, out: str) -> Metrics:
    """Write the finished cross-encoder of `config.checkpoint` with the tokenizer of `start`."""
    c = CrossEncoderConfig(**config)
    assert c.checkpoint is not None
    save_classifier(Path(out), load_classifier(c.checkpoint), Path(start))
    write_lengths(lengths(c), Path(out))
    return {"updates": 0}


def last_bias(model: CrossEncoder) -> nn.Parameter:
    """What is added to every logit."""
    return model.classifier.bias if model.config.model_type == "bert" else model.classifier.out_proj.bias


def listwise(logit_QN: Tensor) -> Tensor:
    """Mean over questions of -log softmax of the positive's logit among the question's own (LCE, equation 3)."""
    return F.cross_entropy(logit_QN, torch.zeros(len(logit_QN), dtype=torch.int64, device=logit_QN.device))


def pointwise(logit_QN: Tensor) -> Tensor:
    """Mean over pairs of the cross-entropy of relevant or not."""
    relevant_QN = torch.zeros_like(logit_QN)
    relevant_QN[:, 0] = 1.0
    return F.binary_cross_entropy_with_logits(logit_QN, relevant_QN)
