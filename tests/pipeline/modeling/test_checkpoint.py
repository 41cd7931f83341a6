"""A saved model loads in transformers and sentence-transformers, with exactly its own weights."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DebertaV2Config,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

from pipeline.errors import InputError
from pipeline.modeling.biencoder import encode_rows, load_encoders
from pipeline.modeling.checkpoint import (
    load_backbone_for_mlm,
    load_encoder,
    load_head,
    longest_input,
    save_checkpoint,
)
from pipeline.modeling.model_files.sentence_transformers_files import ACTIVATIONS, Dense, Vector, read_vector
from pipeline.tokenization import wordpiece

WORDS = ["what", "a", "word", "##s", "is", "here", "."]
SHAPE = {"vocab_size": 12, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
BERT = BertConfig(**SHAPE, max_position_embeddings=20)
ROBERTA = RobertaConfig(**SHAPE, max_position_embeddings=21, pad_token_id=0, type_vocab_size=1)


@pytest.fixture
def tokenizer(tmp_path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    normal = wordpiece.Normal(lowercase=True, split_identifiers=True, drop_rules=False)
    wordpiece.build_tokenizer([*wordpiece.SPECIALS, *WORDS], normal).save(str(folder / "tokenizer.json"))
    names = {
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    return folder


def masked_lm(config=BERT):
    torch.manual_seed(0)
    return (BertForMaskedLM if config is BERT else RobertaForMaskedLM)(config).eval()


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("config", [BERT, ROBERTA], ids=["bert", "roberta"])
def test_a_saved_model_is_loaded_unchanged(tmp_path, tokenizer, config):
    model = masked_lm(config)
    head = {"0.weight": torch.randn(3, 4).T, "0.bias": torch.randn(3)}
    save_checkpoint(tmp_path / "out", model, tokenizer, head)
    assert equal(load_backbone_for_mlm(tmp_path / "out").state_dict(), model.state_dict())
    assert equal(AutoModelForMaskedLM.from_pretrained(tmp_path / "out").state_dict(), model.state_dict())
    assert equal(load_head(tmp_path / "out"), head)
    assert equal(load_encoder(tmp_path / "out").state_dict(), model.base_model.state_dict())
    assert not load_encoder(tmp_path / "out").training
    assert not (tmp_path / "out" / "history.parquet").exists()


def test_no_pooler_is_saved(tmp_path, tokenizer):
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer)
    assert not [name for name in load_file(tmp_path / "out" / "model.safetensors") if "pooler" in name]


@pytest.mark.parametrize("model_class", [BertModel, RobertaModel])
def test_a_bare_encoder_is_saved_and_loaded(tmp_path, tokenizer, model_class):
    torch.manual_seed(1)
    model = model_class(BERT if model_class is BertModel else ROBERTA, add_pooling_layer=False)
    save_checkpoint(tmp_path / "out", model, tokenizer)
    assert equal(load_encoder(tmp_path / "out").state_dict(), model.state_dict())
    with pytest.raises(InputError, match=r"the model lacks weight \S+ and \d more$"):
        load_backbone_for_mlm(tmp_path / "out")


@pytest.mark.parametrize("config", [BERT, ROBERTA], ids=["bert", "roberta"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_sentence_transformers_gives_our_vectors(tmp_path, tokenizer, config, pooling):
    from sentence_transformers import SentenceTransformer

    model = masked_lm(config)
    save_checkpoint(tmp_path / "out", model, tokenizer, vector=Vector(pooling))
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert theirs.similarity_fn_name == "dot"
    assert theirs.max_seq_length == longest_input(model) == 20
    texts = ["what words", "A WORD is here. " * 9]
    vectors = torch.tensor(theirs.encode(texts))
    for text, vector in zip(texts, vectors, strict=True):
        ids = AutoTokenizer.from_pretrained(tmp_path / "out")(text, truncation=True, return_tensors="pt").input_ids
        with torch.no_grad():
            states_LD = model.base_model(ids).last_hidden_state[0]
        torch.testing.assert_close(vector, states_LD[0] if pooling == "cls" else states_LD.mean(0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize(
    ("normalise", "projection", "activation"),
    [(True, 0, "Identity"), (False, 6, "Identity"), (True, 6, "Identity"), *((False, 6, name) for name in ACTIVATIONS)],
)
def test_projection_norm_and_prefix_equal_those_of_sentence_transformers(
    tmp_path, tokenizer, pooling, normalise, projection, activation
):
    from sentence_transformers import SentenceTransformer

    torch.manual_seed(3)
    bias = None if normalise else torch.randn(projection)
    dense = Dense(torch.randn(projection, BERT.hidden_size), bias, activation) if projection else None
    vector = Vector(pooling, normalise, dense, question_prefix="what ")
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer, vector=vector)
    assert read_vector(tmp_path / "out").question_prefix == "what "
    encoder = load_encoders(tmp_path / "out")[0]
    assert (encoder.pooling, encoder.normalise, encoder.dimension) == (pooling, normalise, projection or 16)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    ids = AutoTokenizer.from_pretrained(tmp_path / "out")("what words").input_ids
    actual = encode_rows(encoder, [np.array(ids)], 99)[0]
    np.testing.assert_allclose(actual, theirs.encode("words", prompt_name="query"), atol=1e-5)


def test_tokenizer_keeps_its_normaliser_next_to_a_model(tmp_path, tokenizer):
    save_checkpoint(tmp_path / "first", masked_lm(), tokenizer)
    save_checkpoint(tmp_path / "second", masked_lm(), tmp_path / "first")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "second")
    assert loaded.convert_ids_to_tokens(loaded("aWord").input_ids) == ["[CLS]", "a", "word", "[SEP]"]
    assert loaded.model_max_length == 20


def test_equal_models_give_equal_bytes(tmp_path, tokenizer):
    history = [{"step": 1, "loss": 2.5}]
    save_checkpoint(tmp_path / "a", masked_lm(), tokenizer, {"x": torch.ones(2)}, history)
    save_checkpoint(
        tmp_path / "b", load_backbone_for_mlm(tmp_path / "a"), tmp_path / "a", load_head(tmp_path / "a"), history
    )
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert {"config.json", "head.safetensors", "history.parquet", "model.safetensors", "modules.json"} < set(
        map(str, files)
    )
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert str(tmp_path) not in (tmp_path / "b" / "config.json").read_text()


def test_modes_follow_the_umask(tmp_path, tokenizer):
    before = os.umask(0o027)
    try:
        save_checkpoint(tmp_path / "out", masked_lm(), tokenizer, {"x": torch.ones(2)}, [{"step": 1, "loss": 0.5}])
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) == 9
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}


def test_the_history_is_saved_with_its_types(tmp_path, tokenizer):
    rows = [{"step": 1, "loss": 2.5, "rate": 0.1}, {"step": 2, "loss": float("nan"), "rate": 0.0}]
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer, history=rows)
    table = parquet.read_table(tmp_path / "out" / "history.parquet")
    assert {field.name: str(field.type) for field in table.schema} == {
        "step": "int64",
        "loss": "double",
        "rate": "double",
    }
    assert table["loss"][0].as_py() == 2.5
    assert table["step"].to_pylist() == [1, 2]


def test_a_missing_head_is_named(tmp_path, tokenizer):
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer)
    with pytest.raises(InputError, match=r"out/head\.safetensors: missing"):
        load_head(tmp_path / "out")
    (tmp_path / "out" / "head.safetensors").write_bytes(b"no such thing")
    with pytest.raises(InputError, match=r"out/head\.safetensors: "):
        load_head(tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.pop("bert.encoder.layer.1.output.dense.bias"),
            "lacks weight bert.encoder.layer.1.output.dense.bias$",
        ),
        (
            lambda w: w.update({"bert.embeddings.word_embeddings.weight": torch.zeros(9, 16)}),
            "wrong shape of weight bert.emb",
        ),
        (lambda w: w.update({"bert.encoder.layer.2.x": torch.zeros(1)}), "unknown weight bert.encoder.layer.2.x"),
    ],
)
@pytest.mark.parametrize("load", [load_backbone_for_mlm, load_encoder])
def test_loading_is_strict(tmp_path, tokenizer, change, message, load):
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer)
    weights = load_file(tmp_path / "out" / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "out" / "model.safetensors", {"format": "pt"})
    if load is load_encoder:
        message = message.replace("lacks weight bert.", "lacks weight ").replace("of weight bert.", "of weight ")
    with pytest.raises(InputError, match=message):
        load(tmp_path / "out")


def test_an_existing_models_spare_weights_are_left_out(tmp_path, tokenizer):
    """bert-base-uncased has a pooler and a next-sentence layer."""
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer)
    weights = load_file(tmp_path / "out" / "model.safetensors")
    weights |= {"bert.pooler.dense.weight": torch.zeros(16, 16), "cls.seq_relationship.bias": torch.zeros(2)}
    save_file(weights, tmp_path / "out" / "model.safetensors", {"format": "pt"})
    assert equal(load_backbone_for_mlm(tmp_path / "out").state_dict(), masked_lm().state_dict())


def test_other_folders_are_refused(tmp_path, tokenizer):
    with pytest.raises(InputError, match=r"nowhere/config\.json: missing"):
        load_encoder(tmp_path / "nowhere")
    DebertaV2Config().save_pretrained(tmp_path / "deberta")
    with pytest.raises(InputError, match="deberta: no model could be loaded"):
        load_backbone_for_mlm(tmp_path / "deberta")
    BERT.save_pretrained(tmp_path / "weightless")
    with pytest.raises(InputError, match="weightless: no model could be loaded"):
        load_encoder(tmp_path / "weightless")
    (tmp_path / "weightless" / "config.json").write_text("[]")
    with pytest.raises(InputError, match=r"config\.json: not the configuration"):
        load_encoder(tmp_path / "weightless")


def test_half_a_file_is_refused(tmp_path, tokenizer):
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer)
    path = tmp_path / "out" / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="out: no model could be loaded"):
        load_backbone_for_mlm(tmp_path / "out")


def test_auto_model_loads_the_backbone(tmp_path, tokenizer):
    save_checkpoint(tmp_path / "out", masked_lm(), tokenizer)
    loaded = AutoModel.from_pretrained(tmp_path / "out", add_pooling_layer=False)
    assert equal(loaded.state_dict(), masked_lm().base_model.state_dict())
