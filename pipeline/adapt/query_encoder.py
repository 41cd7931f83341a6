"""Trains all weights of the question encoder, so that it ranks as the teacher does. Passages keep their vectors.

The loss is that of the linear map (linear_map.py): the KL divergence of the model's distribution over a query's
candidates from the teacher's. The trained weights are merged with those of the start.

Shapes: Q queries, B queries of a batch, K candidates of a query, N passages, E dimension of a vector.
"""

from typing import Any

import numpy as np
import torch

from pipeline.adapt.linear_map import Lists, batch, kl_divergence
from pipeline.adapt.training import Training, train_and_merge
from pipeline.dense.rescore import take_rows
from pipeline.modeling.biencoder import Encoder, vectors
from pipeline.modeling.inputs import Ids, pack_rows
from pipeline.modeling.packing import upload
from pipeline.training.gradients import add_gradients
from pipeline.training.loss_scale import scaled


def train_query_encoder(training: Training, encoder: Encoder, ids: Ids, lists: Lists, vectors_NE: np.ndarray) -> None:
    """Changes the weights of `encoder`, which is on the device, to the trained ones, merged with those it has.

    `ids`: tokens of the queries of `lists`.
    """
    config, device = training.config, training.device
    trained = encoder.modules()
    length_Q = np.array([len(row) for row in ids])

    def step(update: int, _: None) -> dict[str, Any]:
        row_B = batch(config.seed, config.batch_queries, update, len(ids))
        row_B = row_B[np.argsort(length_Q[row_B], kind="stable")]
        packed = pack_rows(ids, row_B, device, bucket=True)
        passage_BKE = upload(take_rows(vectors_NE, lists.row_QK[row_B]).astype(np.float32), device)
        logits_BK = torch.einsum("be,bke->bk", vectors(encoder, packed), passage_BKE) / lists.temperature
        loss = kl_divergence(logits_BK, lists.target_QK[row_B].to(torch.device(device)))
        add_gradients(trained, scaled(loss), last=True)
        return {"loss": loss.detach(), "tokens": float(length_Q[row_B].sum())}

    train_and_merge(training, config.query_encoder, [encoder], trained, step)
