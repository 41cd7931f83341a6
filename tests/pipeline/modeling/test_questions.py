"""Vectors of typed questions: equal to those of the artifact, and the same bytes alone as in a batch."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from encoders import ENCODER, FORM
from transformers import BertConfig, BertModel

from pipeline.dense.question_encoder import QuestionEncoder, question_encoder
from pipeline.errors import InputError
from pipeline.modeling.biencoder import Encoder, encode_rows
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import question_rows
from pipeline.tokenization.token_files import Tokens

TEXTS = [" ".join(f"w{n}" for n in np.random.default_rng(seed).integers(0, 300, 1 + seed % 14)) for seed in range(150)]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_typed_question_is_encoded_like_those_of_the_collection(world) -> None:
    texts = pq.read_table(world.collection / "queries.parquet")["text"].to_pylist()
    encoder = question_encoder(world.checkpoint, ENCODER)
    expected = encode_rows(encoder.encoder, question_rows(Tokens.open(world.tokens), range(len(texts)), FORM), 512)
    np.testing.assert_allclose(encoder.vectors(encoder.rows(texts)), expected, atol=1e-5)


def test_special_tokens_in_a_typed_question_are_text(world) -> None:
    unknown = [1, 1, 1]  # of `[`, `MASK` and `]`, as in the tokens stage
    [row] = question_encoder(world.checkpoint, ENCODER).rows(["w7 [MASK] w9"])
    assert row.tolist() == [2, 5 + 7, *unknown, 5 + 9, 3]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("width", [16, 96, pytest.param(384, marks=pytest.mark.slow)])
def test_a_vector_has_the_same_bytes_alone_as_in_a_batch(world, pooling, width) -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=305, hidden_size=width, num_hidden_layers=2, num_attention_heads=2, intermediate_size=4 * width
    )
    model = Encoder(BertModel(config, add_pooling_layer=False).eval(), pooling)
    encoder = QuestionEncoder(model, question_encoder(world.checkpoint, ENCODER).tokenizer, FORM)
    rows = encoder.rows(TEXTS)
    alone = np.concatenate([encoder.vectors([row]) for row in rows])
    order = np.random.default_rng(0).permutation(len(rows))
    for together in (2, 3, 5, 17, 64):
        for start in range(0, len(rows), together):
            part = order[start : start + together]
            np.testing.assert_array_equal(encoder.vectors([rows[i] for i in part]), alone[part])
    np.testing.assert_array_equal(encoder.vectors(rows, together=1), alone)
    assert encoder.is_steady()


def test_an_encoder_whose_rows_depend_on_their_neighbours_is_reported(world, monkeypatch) -> None:
    encoder = question_encoder(world.checkpoint, ENCODER)

    def unsteady(model, ids, budget) -> np.ndarray:
        return encode_rows(model, ids, budget) * np.float32(1 + 1e-6 * len(ids))

    monkeypatch.setattr("pipeline.dense.question_encoder.encode_rows", unsteady)
    assert not encoder.is_steady()


def test_a_question_without_a_token_has_no_row(world) -> None:
    first, none, last = question_encoder(world.checkpoint, ENCODER).rows(["w1", " \t", "w1"])
    assert none is None
    assert first is not None
    assert first.tolist() == last.tolist() == [2, 6, 3]


@pytest.mark.parametrize("prefix", [(), (7, 8)])
@pytest.mark.parametrize(("words", "signs"), [(1, 0), (12, 0), (14, 0), (15, 0), (9, 6), (40, 2), (2_000, 0)])
def test_a_cut_question_is_reported(world, prefix, words, signs) -> None:
    """A row holds 14 tokens, minus those of the prefix, between the special ones."""
    known = question_encoder(world.checkpoint, ENCODER)
    encoder = QuestionEncoder(known.encoder, known.tokenizer, replace(FORM, before_question=prefix))
    text = " ".join(["w1"] * words + ["?"] * signs)
    room = 14 - len(prefix)
    message = f"question cut, tokens read of its {words + signs:,}: {room}; encoder.question_tokens"
    assert encoder.cut(text) == (message if words + signs > room else "")


def test_a_question_length_beyond_the_model_is_refused(world) -> None:
    longer = EncoderConfig(**{**ENCODER.model_dump(), "question_tokens": 65})
    with pytest.raises(InputError, match=r"encoder\.question_tokens: 65 tokens"):
        question_encoder(world.checkpoint, longer)
