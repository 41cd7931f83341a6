"""Vectors are rotated so that their first numbers are principal components."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from encoders import ENCODER
from finetuned import train
from updates import SMALL, encoder

from pipeline.finetune import principal_components
from pipeline.finetune.encoders import Towers, encode_all
from pipeline.finetune.principal_components import can_rotate, rotated_towers, sample
from pipeline.modeling.biencoder import Projection, frozen_encoders
from pipeline.modeling.inputs import passage_rows, read_form
from pipeline.modeling.model_files.sentence_transformers_files import read_vector
from pipeline.tokenization.token_files import Tokens

SHAPE = {**SMALL, "vocab_size": 500}


def rows(number, first=3):
    rng = np.random.default_rng(first)
    return [np.r_[2, rng.integers(5, 500, length), 3] for length in rng.integers(1, 20, number)]


def with_bias(one):
    """The encoder with a projection that has a bias."""
    return replace(one, projection=Projection(SHAPE["hidden_size"], 8, bias=True))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("change", [lambda one: one, with_bias], ids=["no projection", "with bias"])
def test_inner_products_stay_and_the_first_numbers_are_the_largest_components(change, tied):
    torch.manual_seed(0)
    passages = change(encoder("bert", SHAPE, 0.0))
    towers = Towers((passages if tied else change(encoder("bert", SHAPE, 0.0)), passages), None)
    queries_QE, vectors_NE = (encode_all(one, rows(40), 100).numpy() for one in towers.encoders)
    result = rotated_towers(towers, vectors_NE)
    assert result.tied == tied
    rotated_QE, rotated_NE = (encode_all(one, rows(40), 100).numpy() for one in result.encoders)
    np.testing.assert_allclose(rotated_QE @ rotated_NE.T, queries_QE @ vectors_NE.T, rtol=1e-3, atol=1e-4)
    moments_EE = rotated_NE.T @ rotated_NE
    largest = moments_EE.max()
    assert np.abs(moments_EE - np.diag(moments_EE.diagonal())).max() < 1e-4 * largest
    assert (np.diff(moments_EE.diagonal()) < 1e-4 * largest).all()
    again_NE = encode_all(rotated_towers(result, rotated_NE).encoders[1], rows(40), 100).numpy()
    np.testing.assert_allclose(again_NE[:, :4], rotated_NE[:, :4], rtol=1e-2, atol=1e-3)  # signs are defined


def test_vectors_after_an_activation_are_not_rotated():
    one = encoder("bert", SHAPE, 0.0)
    activated = replace(one, projection=Projection(SHAPE["hidden_size"], 8, activation="Tanh"))
    assert can_rotate(Towers((one, one), None))
    assert not can_rotate(Towers((activated, activated), None))


def test_a_sample_has_no_passage_twice(monkeypatch):
    monkeypatch.setattr(principal_components, "PASSAGES", 10)
    assert len({*sample(30, 0).tolist()}) == 10
    assert sample(4, 0).tolist() == [0, 1, 2, 3]


def test_a_training_with_dimensions_writes_rotated_vectors(world, work, inline):
    shown = []

    def progress(done, total, unit, numbers=None):
        if unit == "passages":
            shown.append((done, total))

    plain, prefixes = (
        train(
            world,
            work(str(dimensions), progress=progress),
            encoder=ENCODER.model_copy(update={"dimensions": dimensions}),
        )[1]
        for dimensions in (None, (16,))
    )
    assert read_vector(plain).projection is None
    data = Tokens.open(world.tokens)
    assert shown[-1] == (len(data.passages), len(data.passages))
    ids = passage_rows(data, range(len(data.passages)), read_form(ENCODER, prefixes, data.specials), 40)
    before_NE, after_NE = (encode_all(frozen_encoders(folder)[1], ids, 500).numpy() for folder in (plain, prefixes))
    np.testing.assert_allclose(after_NE @ after_NE.T, before_NE @ before_NE.T, rtol=1e-4, atol=1e-3)
    assert (np.diff(np.square(after_NE).sum(0)) <= 1e-3 * np.square(after_NE).sum()).all()
    assert np.square(after_NE[:, :4]).sum() > np.square(before_NE[:, :4]).sum()
