"""Losses over prefixes of the vectors, `encoder.dimensions`."""

import numpy as np
import pytest
import torch
from encoders import ENCODER
from finetuned import train
from safetensors.numpy import load_file
from torch.nn import functional as F

from pipeline.errors import InputError
from pipeline.finetune import losses, step
from pipeline.finetune.step import Piece

QUESTIONS, OWN, WIDTH = 4, 3, 8
ROWS = QUESTIONS * (1 + OWN)
DIMENSIONS = [8, 5, 2]


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, WIDTH))


def inputs():
    return torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(1))


def excluded():
    out_QP = torch.zeros(QUESTIONS, QUESTIONS * OWN, dtype=torch.bool)
    out_QP[1, 7] = True
    return out_QP


def contrastive(vectors_RE):
    return losses.contrastive(vectors_RE[:QUESTIONS], vectors_RE[QUESTIONS:], excluded(), 0.7)


def soft_labels(vectors_RE):
    target_QN = torch.rand(QUESTIONS, OWN, generator=torch.Generator().manual_seed(2)).softmax(1)
    return losses.soft_labels(vectors_RE[:QUESTIONS], vectors_RE[QUESTIONS:], excluded() & False, 0.7, target_QN)


def wrapped(loss, normalise, dimensions):
    return lambda vectors_RE: losses.over_prefixes(loss, vectors_RE, dimensions, normalise)


def gradients(trained):
    return [parameter.grad for parameter in trained.parameters()]


@pytest.mark.parametrize("loss", [contrastive, soft_labels])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("size", [3, 16])
def test_the_gradient_cache_gives_the_gradient_of_the_written_out_mean(loss, normalise, size):
    plain = model()
    raw_RE = plain(inputs())
    by_dimension = [
        loss(F.normalize(raw_RE[:, :n], dim=1) if normalise else raw_RE[:, :n])  # of the raw vector, not of a unit one
        for n in DIMENSIONS
    ]
    expected = (by_dimension[0] + by_dimension[1] + by_dimension[2]) / 3
    expected.backward()

    cached = model()
    x = inputs()
    pieces = [Piece(0, n, np.arange(ROWS)[first : first + size]) for n, first in enumerate(range(0, ROWS, size))]

    def encode(piece):
        vectors_BE = cached(x[piece.row_B])
        return F.normalize(vectors_BE, dim=1) if normalise else vectors_BE

    value = step.backward(
        cached, encode, pieces, (ROWS, WIDTH), wrapped(loss, normalise, DIMENSIONS), keep=False, device="cpu"
    )
    torch.testing.assert_close(value, expected.detach())
    for one, other in zip(gradients(cached), gradients(plain), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("loss", [contrastive, soft_labels])
@pytest.mark.parametrize("normalise", [False, True])
def test_the_whole_vector_alone_is_the_plain_loss(loss, normalise):
    vectors_RE = model()(inputs()).detach()
    values, grads = [], []
    for each in (loss, wrapped(loss, normalise, [WIDTH])):
        leaf_RE = vectors_RE.clone().requires_grad_()
        value = each(leaf_RE)
        values.append(value.detach())
        grads += torch.autograd.grad(value, [leaf_RE])
    assert torch.equal(*values)
    assert torch.equal(*grads)


def test_a_training_with_the_whole_vector_alone_writes_the_same_weights(world, work, inline):
    plain, whole, prefixes = (
        load_file(train(world, work(str(dimensions)), encoder=encoder(dimensions))[1] / "model.safetensors")
        for dimensions in (None, (16,), (16, 4))
    )
    assert all(np.array_equal(plain[name], whole[name]) for name in plain)
    assert any(not np.array_equal(plain[name], prefixes[name]) for name in plain)


def test_another_dimension_than_the_models_is_refused(world, work, inline):
    with pytest.raises(InputError, match=r"encoder.dimensions: the first \(12\) must be the whole vector, of 16"):
        train(world, work(), encoder=encoder((12, 4)))


def encoder(dimensions):
    return ENCODER.model_copy(update={"dimensions": dimensions})
