import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from pipeline.biencoder import (
    Encoder,
    check_fits,
    encode_rows,
    groups,
    load_encoders,
    passage_row,
    passage_rows,
    question_row,
    read_pooling,
    represent,
)
from pipeline.errors import InputError
from pipeline.ragged import Specials, Tokens

SPECIALS = Specials(vocab_size=305, pad=0, unk=1, cls=2, sep=3, mask=4)


def test_question_is_cut_at_its_limit():
    assert question_row(np.arange(10, 20), SPECIALS, 6).tolist() == [2, 10, 11, 12, 13, 3]
    assert question_row(np.arange(10, 12), SPECIALS, 6).tolist() == [2, 10, 11, 3]


def test_passage_holds_title_and_text():
    title, text = np.array([10, 11, 12]), np.arange(20, 40)
    assert passage_row(title, text, SPECIALS, 2, 10).tolist() == [2, 10, 11, 3, 20, 21, 22, 23, 24, 3]
    assert passage_row(title, text, SPECIALS, 0, 6).tolist() == [2, 20, 21, 22, 23, 3]
    assert passage_row(title[:0], text[:2], SPECIALS, 5, 10).tolist() == [2, 20, 21, 3]


@given(st.integers(0, 40), st.integers(0, 60), st.integers(0, 30), st.integers(8, 64))
def test_passage_never_exceeds_its_limit_nor_loses_its_text(title, text, title_limit, limit):
    row = passage_row(np.full(title, 7), np.full(text, 8), SPECIALS, title_limit, limit)
    assert len(row) <= limit
    assert (row[0], row[-1]) == (2, 3)
    assert (row == 8).any() == (text > 0)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200))
def test_groups_hold_each_row_once_within_the_budget(lengths, budget):
    parts = groups(lengths, budget)
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    assert all(len(part) == 1 or len(part) * max(lengths[i] for i in part) <= budget for part in parts)
    flat = [lengths[i] for part in parts for i in part]
    assert flat == sorted(flat)


@pytest.mark.parametrize(("configuration", "model"), [(BertConfig, BertModel), (RobertaConfig, RobertaModel)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_those_of_transformers(configuration, model, pooling):
    torch.manual_seed(0)
    shape = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40}
    encoder = Encoder(
        model(configuration(vocab_size=90, initializer_range=0.3, **shape), add_pooling_layer=False).eval(), pooling
    )
    rows = [np.arange(5, 5 + length) for length in (9, 30, 9, 17, 2)]
    for row, vector in zip(rows, encode_rows(encoder, rows, 60), strict=True):
        with torch.no_grad():
            hidden = encoder.model(input_ids=torch.from_numpy(row)[None]).last_hidden_state[0].numpy()
        np.testing.assert_allclose(vector, hidden[0] if pooling == "cls" else hidden.mean(0), atol=3e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_do_not_depend_on_budget_or_order(world, pooling):
    encoder = Encoder(load_encoders(world.checkpoint)[1].model, pooling)
    rows = passage_rows(Tokens.open(world.tokens), range(40), 4, 40)
    alone = np.concatenate([encode_rows(encoder, [row], 1) for row in rows])
    for budget in (1, 100, 10_000):
        np.testing.assert_allclose(encode_rows(encoder, rows, budget), alone, atol=2e-6)
    backwards = encode_rows(encoder, rows[::-1], 300)
    np.testing.assert_allclose(backwards[::-1], alone, atol=2e-6)
    assert np.std(alone, axis=0).min() > 0.01  # passages do differ


def test_gradients_reach_the_rows_in_their_order(world):
    encoder = load_encoders(world.checkpoint)[0]
    rows = passage_rows(Tokens.open(world.tokens), range(6), 4, 40)
    weights = torch.randn(6, encoder.dimension, generator=torch.Generator().manual_seed(0))

    def gradient(budget):
        encoder.model.zero_grad()
        (represent(encoder, rows, budget) * weights).sum().backward()
        return encoder.model.embeddings.word_embeddings.weight.grad.clone()

    torch.testing.assert_close(gradient(1), gradient(10_000), atol=1e-5, rtol=1e-5)


def test_tied_checkpoint_gives_one_encoder(world):
    questions, passages = load_encoders(world.checkpoint)
    assert questions is passages
    assert questions.pooling == "cls"
    assert represent(questions, [], 10).shape == (0, 16)


def test_pooling_is_read_from_the_checkpoint(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(InputError, match="cannot be read"):
        read_pooling(path)
    for text, expected in (
        ('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}', "cls"),
        ('{"pooling_mode": "mean"}', "mean"),
    ):
        path.write_text(text)
        assert read_pooling(path) == expected
    path.write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(InputError, match="neither"):
        read_pooling(path)


def test_misfits_name_the_field(world):
    encoder = load_encoders(world.checkpoint)[0]
    with pytest.raises(InputError, match="passage_tokens: 65 tokens"):
        check_fits(encoder, SPECIALS, world.checkpoint, "passage_tokens", 65)
    with pytest.raises(InputError, match="305 token embeddings"):
        check_fits(encoder, Specials(306, 0, 1, 2, 3, 4), world.checkpoint, "passage_tokens", 64)
