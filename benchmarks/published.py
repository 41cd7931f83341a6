"""The published way to take a step of Condenser, coCondenser and fine-tuning, to compare with: every sequence padded
to the limit, eager attention, and in pre-training the whole batch through the whole vocabulary twice. Written from the
papers and the models' own modules; its numbers are those of this project's step (tests/benchmarks/test_published.py).
On CUDA all products are bfloat16, as this project's, and no step waits for the device.

Shapes: B sequences, L tokens each, D dimensions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.modeling.cross_entropy import contrastive
from pipeline.modeling.inputs import Ids
from pipeline.modeling.packing import Batch
from pipeline.runtime.precision import autocast


class Padded(NamedTuple):
    ids_BL: Tensor
    attention_BL: Tensor
    label_BL: Tensor
    """-100 where nothing is masked."""


def padded(batch: Batch, limit: int, pad: int) -> Padded:
    """The sequences of a batch, rows 2i and 2i + 1 still pairs, padded to `limit`."""
    shape = (batch.sequences, limit)
    ids, attention, labels = torch.full(shape, pad), torch.zeros(shape), torch.full(shape, -100)
    for chunk in batch.chunks:
        row_T = chunk.row_B.repeat_interleave(chunk.every.edges.diff())
        ids[row_T, chunk.position_T] = chunk.ids_T
        attention[row_T, chunk.position_T] = 1.0
        labels[row_T[chunk.masked.at_R], chunk.position_T[chunk.masked.at_R]] = chunk.label_M
    return Padded(ids, attention, labels)


def published_losses(module: Any, given: Padded, skip_from: int, attention: str = "eager") -> tuple[Tensor, Tensor]:
    """Returns (head MLM + late MLM, CLS vectors [B, D]). `attention`: `eager` or `sdpa`."""
    lm, head = module["lm"], module["head"]
    if lm.config._attn_implementation != attention:
        lm.set_attn_implementation(attention)
    mask_B11L = given.attention_BL[:, None, None, :] > 0
    if attention == "eager":  # which adds its mask to the scores
        mask_B11L = (1.0 - mask_B11L.float()) * torch.finfo(torch.float32).min
    with autocast(given.ids_BL.device.type):
        states = [lm.base_model.embeddings(input_ids=given.ids_BL)]
        for layer in lm.base_model.encoder.layer:
            states.append(layer(states[-1], mask_B11L))
        late_BLD = states[-1]
        head_BLD = torch.cat([late_BLD[:, :1], states[skip_from][:, 1:]], dim=1)
        for layer in head:
            head_BLD = layer(head_BLD, mask_B11L)
        head_loss, late_loss = (
            F.cross_entropy(lm.cls(hidden_BLD).flatten(0, 1), given.label_BL.flatten())
            for hidden_BLD in (head_BLD, late_BLD)
        )
    return head_loss + late_loss, late_BLD[:, 0]


def condenser(module: Any, given: Padded, skip_from: int, chunk: int, attention: str = "eager") -> Tensor:
    """Computes gradients of Condenser's loss over the batch, in chunks of `chunk` sequences. Returns the loss."""
    total, masked = torch.zeros((), device=given.ids_BL.device), (given.label_BL >= 0).sum()
    for part in chunks(given, chunk):
        mlm, _ = published_losses(module, part, skip_from, attention)
        mlm = mlm * ((part.label_BL >= 0).sum() / masked)
        mlm.backward()
        total += mlm.detach()
    return total


def cocondenser(module: Any, given: Padded, skip_from: int, chunk: int, attention: str = "eager") -> Tensor:
    """Computes gradients of coCondenser's loss with a gradient cache of `chunk` spans. Returns the loss.

    The first pass computes everything, as published. The MLM loss is weighted by each chunk's masked tokens, so that
    the result is the batch's mean; the published code averages over chunks, which costs the same.
    """
    parts = chunks(given, chunk)
    with torch.no_grad():
        cls_SD = torch.cat([published_losses(module, part, skip_from, attention)[1] for part in parts]).float()
    cls_SD.requires_grad_()
    loss = contrastive(cls_SD)
    loss.backward()
    total, masked = loss.detach().clone(), (given.label_BL >= 0).sum()
    assert cls_SD.grad is not None
    for part, gradient_BD in zip(parts, cls_SD.grad.split(chunk), strict=True):
        mlm, cls_BD = published_losses(module, part, skip_from, attention)
        mlm = mlm * ((part.label_BL >= 0).sum() / masked)
        (mlm + (gradient_BD * cls_BD).sum()).backward()
        total += mlm.detach()
    return total


def chunks(given: Padded, size: int) -> list[Padded]:
    return [Padded(*x) for x in zip(*(x.split(size) for x in given), strict=True)]


class Filled(NamedTuple):
    ids_BL: Tensor
    attention_BL: Tensor


def filled(ids: Ids, limit: int, pad: int) -> Filled:
    """Returns rows padded to `limit`."""
    given = Filled(torch.full((len(ids), limit), pad), torch.zeros(len(ids), limit, dtype=torch.long))
    for i, row in enumerate(ids):
        given.ids_BL[i, : len(row)] = torch.from_numpy(row)
        given.attention_BL[i, : len(row)] = 1
    return given


def biencoder(model: Any, questions: Filled, passages: Filled, passage_model: Any = None) -> Tensor:
    """Computes gradients of the contrastive loss of CLS vectors. A question's first passage is positive. Returns it.

    All layers run at all positions, in one forward call of the questions and one of the passages. `passage_model`:
    encodes the passages (None: `model` does).
    """
    with autocast(questions.ids_BL.device.type):
        questions_QD, passages_PD = (
            encoder(input_ids=given.ids_BL, attention_mask=given.attention_BL).last_hidden_state[:, 0].float()
            for encoder, given in ((model, questions), (passage_model or model, passages))
        )
    own_Q = torch.arange(len(questions_QD), device=questions_QD.device) * (len(passages_PD) // len(questions_QD))
    loss = F.cross_entropy(questions_QD @ passages_PD.T, own_Q)
    loss.backward()
    return loss.detach()


def cross_encoder(model: Any, pairs: Filled, type_BL: Tensor, own: int) -> Tensor:
    """Computes gradients of the listwise loss of groups of `own` pairs, the positive first. Returns the loss.

    `model`: a Hugging Face sequence classifier of one logit; `type_BL`: token types.
    """
    with autocast(pairs.ids_BL.device.type):
        given = {"input_ids": pairs.ids_BL, "attention_mask": pairs.attention_BL, "token_type_ids": type_BL}
        logit_QN = model(**given).logits.float().view(-1, own)
    loss = F.cross_entropy(logit_QN, torch.zeros(len(logit_QN), dtype=torch.int64, device=logit_QN.device))
    loss.backward()
    return loss.detach()
