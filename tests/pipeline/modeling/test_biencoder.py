import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from crossed import make_roberta
from encoders import ENCODER, FORM, SPECIALS
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from pipeline.errors import InputError
from pipeline.modeling.biencoder import Encoder, as_projection, check_fits, encode_rows, load_encoders, vectors
from pipeline.modeling.inputs import Form, pack, passage_row, passage_rows, question_row, read_form
from pipeline.modeling.model_files.sentence_transformers_files import Dense, Vector, read_vector
from pipeline.tokenization.token_files import Specials, Tokens
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens
from pipeline.tokenization.tokens import encode


def test_question_is_cut_at_its_limit():
    form = Form(SPECIALS, question_tokens=6, title_tokens=0)
    assert question_row(np.arange(10, 20), form).tolist() == [2, 10, 11, 12, 13, 3]
    assert question_row(np.arange(10, 12), form).tolist() == [2, 10, 11, 3]


def test_passage_holds_title_and_text():
    title, text = np.array([10, 11, 12]), np.arange(20, 40)

    def row(title_tokens, limit, title=title, text=text):
        return passage_row(title, text, Form(SPECIALS, 16, title_tokens, between=(3,)), limit).tolist()

    assert row(2, 10) == [2, 10, 11, 3, 20, 21, 22, 23, 24, 3]
    assert row(0, 6) == [2, 20, 21, 22, 23, 3]
    assert row(5, 10, title[:0], text[:2]) == [2, 20, 21, 3]


def test_rows_hold_prefixes_and_titles_without_separator():
    form = Form(SPECIALS, 8, 4, before_question=(7, 8), before_passage=(9,), between=())
    assert question_row(np.arange(10, 20), form).tolist() == [2, 7, 8, 10, 11, 12, 13, 3]
    assert passage_row(np.array([30, 31]), np.arange(10, 20), form, 8).tolist() == [2, 9, 30, 31, 10, 11, 12, 3]


@given(st.integers(0, 40), st.integers(0, 60), st.integers(0, 30), st.integers(0, 3), st.integers(8, 64))
def test_passage_never_exceeds_its_limit_nor_loses_its_text(title, text, title_limit, prefix, limit):
    form = Form(SPECIALS, 16, title_limit, before_passage=(9,) * min(prefix, limit // 2 - 3), between=(3,))
    row = passage_row(np.full(title, 7), np.full(text, 8), form, limit)
    assert len(row) <= limit
    assert (row[0], row[-1]) == (2, 3)
    assert (row == 8).any() == (text > 0)


def test_the_form_of_texts_is_read_from_the_configuration(world):
    config = ENCODER.model_copy(update={"question_prefix": "w7 w8", "passage_prefix": "w9", "title_separator": "space"})
    form = read_form(config, world.checkpoint, SPECIALS)
    assert form == Form(SPECIALS, 16, 4, before_question=(12, 13), before_passage=(14,), between=())
    assert read_form(ENCODER, world.checkpoint, SPECIALS) == FORM


TEXTS = ("words", "A list, of é", " two  spaces", "(sign)", "x" * 9, "日本語 text", "mid-word")


@pytest.mark.parametrize("prefix", ["query: ", "query:", ""])
@pytest.mark.parametrize("title", ["", "The title", "(a sign"])
def test_the_rows_of_byte_level_bpe_are_those_of_the_joined_text(tmp_path, prefix, title):
    """Its words are encoded differently inside a text."""
    tokenizer = read_tokenizer(make_roberta(tmp_path, ["query: the words of a title, and a list of them", *TEXTS]))
    specials, _ = special_tokens(tokenizer)
    fields = {"question_prefix": prefix, "passage_prefix": prefix, "title_separator": "space", "title_tokens": 99}
    form = read_form(ENCODER.model_copy(update={**fields, "question_tokens": 99}), tmp_path / "start", specials)
    before = f"{prefix.strip()} " if prefix else ""
    title_ids, *ids = (np.array(one, np.int64) for one in encode(tokenizer, [title, *TEXTS]))
    for text, row in zip(TEXTS, ids, strict=True):
        assert question_row(row, form).tolist() == tokenizer.encode(before + text).ids
        joined = f"{before}{title} {text}" if title else before + text
        assert passage_row(title_ids, row, form, 300).tolist() == tokenizer.encode(joined).ids


def test_a_prefix_that_byte_level_bpe_reads_into_the_text_is_refused(tmp_path):
    folder = make_roberta(tmp_path, [*TEXTS])
    config = ENCODER.model_copy(update={"question_prefix": "query:  "})
    with pytest.raises(InputError, match=r"encoder\.question_prefix: 'query:  ' changes .* end it with one space"):
        read_form(config, folder, SPECIALS)


def test_a_prefix_leaves_room_for_the_question(world):
    config = ENCODER.model_copy(update={"question_prefix": "w7 " * 13})
    assert len(read_form(config, world.checkpoint, SPECIALS).before_question) == 13
    config = ENCODER.model_copy(update={"question_prefix": "w7 " * 14})
    message = r"encoder\.question_prefix: its 14 tokens .* no room for a text in encoder\.question_tokens \(16\)"
    with pytest.raises(InputError, match=message):
        read_form(config, world.checkpoint, SPECIALS)


def test_forms_need_no_torch():
    code = "import sys, pipeline.modeling.inputs, flows.flow; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("configuration", "model"), [(BertConfig, BertModel), (RobertaConfig, RobertaModel)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_equal_those_of_transformers(configuration, model, pooling):
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
    rows = passage_rows(Tokens.open(world.tokens), range(40), FORM, 40)
    alone = np.concatenate([encode_rows(encoder, [row], 1) for row in rows])
    for budget in (1, 100, 10_000):
        np.testing.assert_allclose(encode_rows(encoder, rows, budget), alone, atol=2e-6)
    backwards = encode_rows(encoder, rows[::-1], 300)
    np.testing.assert_allclose(backwards[::-1], alone, atol=2e-6)
    assert np.std(alone, axis=0).min() > 0.01  # the passages differ
    assert encode_rows(encoder, [], 10).shape == (0, 16)


def test_gradients_reach_the_rows_in_their_order(world):
    encoder = load_encoders(world.checkpoint)[0]
    rows = sorted(passage_rows(Tokens.open(world.tokens), range(6), FORM, 40), key=len)
    weights = torch.randn(6, encoder.dimension, generator=torch.Generator().manual_seed(0))

    def gradient(size):
        encoder.model.zero_grad()
        for first in range(0, 6, size):
            part = slice(first, first + size)
            (vectors(encoder, pack(rows[part], "cpu")) * weights[part]).sum().backward()
        return encoder.model.embeddings.word_embeddings.weight.grad.clone()

    torch.testing.assert_close(gradient(1), gradient(6), atol=1e-5, rtol=1e-5)


def test_tied_checkpoint_gives_one_encoder(world):
    questions, passages = load_encoders(world.checkpoint)
    assert questions is passages
    assert questions.pooling == "cls"


@pytest.mark.parametrize("activation", ["Identity", "Tanh"])
def test_a_projection_is_a_linear_map_and_an_activation(world, activation):
    encoder = load_encoders(world.checkpoint)[0]
    dense = Dense(torch.randn(6, 16), None if activation == "Identity" else torch.randn(6), activation)
    projection = as_projection(dense)
    projected = Encoder(encoder.model, "cls", projection=projection)
    rows = [np.array([2, 8, 9, 3])]
    expected = encode_rows(encoder, rows, 9) @ dense.weight_ED.T.numpy()
    if activation == "Tanh":
        expected = np.tanh(expected + dense.bias_E.numpy())
    assert projection.dense.activation == activation
    np.testing.assert_allclose(encode_rows(projected, rows, 9), expected, atol=1e-5)


def test_pooling_is_read_from_the_checkpoint(tmp_path):
    path = tmp_path / "1_Pooling" / "config.json"
    with pytest.raises(InputError, match="cannot be read"):
        read_vector(tmp_path)
    path.parent.mkdir()
    for settings, expected in (
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "mean"}, "mean"),
    ):
        path.write_text(json.dumps(settings))
        assert read_vector(tmp_path).pooling == expected
    path.write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(InputError, match="only cls or mean"):
        read_vector(tmp_path)


def test_folders_of_sentence_transformers_are_read(tmp_path):
    """Folders that other packages write: modules in any folder, also unknown modules."""
    pooling = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}

    def folder(*kinds):
        for path in tmp_path.rglob("*.json"):
            path.unlink()
        modules = [
            {"path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)
        ]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        for module in modules:
            (tmp_path / module["path"]).mkdir(exist_ok=True)
            (tmp_path / module["path"] / "config.json").write_text(json.dumps(pooling))
        return tmp_path

    assert read_vector(folder("Transformer", "Pooling")) == Vector("mean")
    assert read_vector(folder("Transformer", "Pooling", "Normalize")) == Vector("mean", normalise=True)
    with pytest.raises(InputError, match="the projection cannot be loaded"):
        read_vector(folder("Transformer", "Pooling", "Dense"))
    with pytest.raises(InputError, match="a module WeightedLayerPooling"):
        read_vector(folder("Transformer", "WeightedLayerPooling"))


def test_an_unfit_length_or_vocabulary_is_reported(world):
    encoder = load_encoders(world.checkpoint)[0]
    with pytest.raises(InputError, match="passage_tokens: 65 tokens"):
        check_fits(encoder, SPECIALS, world.checkpoint, "passage_tokens", 65)
    with pytest.raises(InputError, match="305 token embeddings"):
        check_fits(encoder, Specials(306, 0, 1, 2, 3, 4), world.checkpoint, "passage_tokens", 64)
