"""Trains all weights of the question encoder, so that it ranks as the teacher does. Passages keep their vectors.

The loss is that of the linear map (linear_map.py): the KL divergence of the model's distribution over a query's
candidates from the teacher's. The trained weights are merged with those of the start.

Shapes: Q queries, B queries of a batch, K candidates of a query, N passages, E dimension of a vector.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.linear_map import Lists, batch
from pipeline.dense.rescore import take_rows
from pipeline.finetune.merge import set_weights
from pipeline.modeling.biencoder import Encoder, vectors
from pipeline.modeling.inputs import Ids, pack_rows
from pipeline.modeling.packing import upload
from pipeline.runtime.work import Machine, Progress
from pipeline.training import loop
from pipeline.training.gradients import add_gradients
from pipeline.training.loss_scale import scaled


def train_query_encoder(
    config: AdaptConfig,
    encoder: Encoder,
    ids: Ids,
    lists: Lists,
    vectors_NE: np.ndarray,
    checkpoints: Path,
    machine: Machine,
    progress: Progress,
    device: str,
) -> None:
    """Changes the weights of `encoder`, which is on `device`, to the trained ones, merged with those it has.

    `ids`: tokens of the queries of `lists`. Resumes from the newest checkpoint in `checkpoints` if there is one.
    """
    trained = encoder.modules()
    start = {name: x.clone() for name, x in trained.state_dict().items()}
    loop.set_dropout(encoder.model, 0)
    length_Q = np.array([len(row) for row in ids])

    def step(update: int, _: None) -> dict[str, Any]:
        row_B = batch(config.seed, config.batch_queries, update, len(ids))
        row_B = row_B[np.argsort(length_Q[row_B], kind="stable")]
        packed = pack_rows(ids, row_B, device)
        passage_BKE = upload(take_rows(vectors_NE, lists.row_QK[row_B]).astype(np.float32), device)
        logits_BK = torch.einsum("be,bke->bk", vectors(encoder, packed), passage_BKE) / lists.temperature
        target_BK = lists.target_QK[row_B].to(torch.device(device))
        loss = F.kl_div(F.log_softmax(logits_BK, dim=1), target_BK, reduction="batchmean")
        add_gradients(trained, scaled(loss), last=True)
        return {"loss": loss.detach(), "tokens": float(length_Q[row_B].sum())}

    settings, minutes = config.query_encoder, machine.checkpoint_minutes
    loop.train(trained, step, settings.steps, settings.optimiser, config.seed, checkpoints, minutes, progress, device)
    set_weights(trained, {name: x.clone() for name, x in trained.state_dict().items()}, start, config.merge)
    encoder.model.eval()
