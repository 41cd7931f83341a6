"""The model before pre-training: from scratch it is a function of its seed, otherwise it is the configured model."""

import json
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from encoders import ENCODER
from huggingface_hub import constants
from machines import make_machine
from pydantic import ValidationError
from transformers import BertConfig, BertForMaskedLM, BertModel
from transformers.activations import ACT2FN

from pipeline.data.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.modeling import initial as stage
from pipeline.modeling.adopt import AdoptConfig, adopt
from pipeline.modeling.checkpoint import load_backbone_for_mlm, load_encoder, load_head, longest_input, save_checkpoint
from pipeline.modeling.initial import InitialConfig, initial, missing
from pipeline.modeling.model_files.model_config import ACTIVATIONS, field
from pipeline.modeling.model_files.sentence_transformers_files import Dense, Vector
from pipeline.runtime.work import Work, silent
from pipeline.tokenization import wordpiece
from pipeline.tokenization.tokenizer import TokenizerConfig, tokenizer
from pipeline.tokenization.tokens import TokensConfig, tokens

MACHINE = make_machine()
SCRATCH = {
    "pretrained": None,
    "revision": "main",
    "checkpoint": None,
    "new_mlm_head": False,
    "architecture": "bert",
    "layers": 2,
    "hidden_size": 16,
    "heads": 2,
    "intermediate_size": 32,
    "max_position": 40,
    "dropout": 0.1,
    "seed": 3,
    "linear_range": 0.02,
    "embeddings": "random",
    "ppmi_window": 6,
    "ppmi_context_exponent": 0.75,
    "ppmi_range": 0.07,
}


def work(out: Path, progress=silent) -> Work:
    out.mkdir()
    return Work(out, out, MACHINE, progress)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> tuple[Path, Path]:
    """A tokenizer and the tokens of 200 random texts."""
    root = tmp_path_factory.mktemp("initial")
    collection = root / "collection"
    collection.mkdir()
    random = np.random.default_rng(0)
    words = [f"{a}{b}" for a in "klmn" for b in ("oo", "ee", "ai")]
    texts = [" ".join(random.choice(words, 30)) for _ in range(200)]
    write_table(
        collection / "passages.parquet",
        schemas()["passages"],
        ((str(i), str(i), "", t) for i, t in enumerate(texts)),
    )
    write_table(collection / "queries.parquet", schemas()["queries"], [])
    fields = {"pretrained": None, "revision": "main", "path": None, "vocab_size": 256, "lowercase": True}
    config = TokenizerConfig(**fields, split_identifiers=False, drop_rules=False)
    tokenizer(config, collection, work(root / "tokenizer"))
    tokens(TokensConfig(max_tokens=None), collection, root / "tokenizer", work(root / "tokens"))
    return root / "tokenizer", root / "tokens"


def run(inputs: tuple[Path, Path], out: Path, progress=silent, **fields):
    metrics = initial(InitialConfig(**{**SCRATCH, **fields}), *inputs, work(out, progress), ENCODER)
    return load_backbone_for_mlm(out), metrics


@pytest.mark.parametrize("architecture", get_args(InitialConfig.model_fields["architecture"].annotation))
def test_a_model_from_scratch_has_the_configured_shape(inputs, tmp_path, architecture):
    model, metrics = run(inputs, tmp_path / "out", architecture=architecture)
    assert model.config.model_type == architecture
    assert longest_input(model) == 40
    model(torch.ones(1, 40, dtype=torch.long))
    if architecture != "modernbert":  # it has no table of positions
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.ones(1, 41, dtype=torch.long))
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 16, 2)
    assert (field(config, "hidden_dropout_prob"), field(config, "attention_probs_dropout_prob")) == (0.1, 0.1)
    assert metrics["parameters"] == sum(p.numel() for p in model.parameters())
    assert metrics["head"] == "none"


@pytest.mark.parametrize("embeddings", ["random", "ppmi_svd"])
def test_weights_are_a_function_of_the_seed(inputs, tmp_path, embeddings):
    torch.manual_seed(1)
    run(inputs, tmp_path / "a", embeddings=embeddings)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))  # the caller's random state is unchanged
    run(inputs, tmp_path / "b", embeddings=embeddings)
    run(inputs, tmp_path / "c", embeddings=embeddings, seed=4)
    files = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in "abc"}
    assert files["a"] == files["b"] != files["c"]


def test_linear_range_scales_the_linear_layers(inputs, tmp_path):
    narrow, _ = run(inputs, tmp_path / "narrow")
    wide, _ = run(inputs, tmp_path / "wide", linear_range=0.1)
    scaled = {name for name, x in wide.named_parameters() if x.ndim == 2 and "embeddings" not in name}
    assert len(scaled) == 2 * 6 + 1  # of two layers, and before the output projection
    for name, x in narrow.state_dict().items():
        torch.testing.assert_close(wide.state_dict()[name], 5 * x if name in scaled else x)


def test_ppmi_embeddings_replace_those_of_tokens_that_occur(inputs, tmp_path):
    calls = []
    model, _ = run(inputs, tmp_path / "ppmi", lambda *call: calls.append(call), embeddings="ppmi_svd")
    random, _ = run(inputs, tmp_path / "random")
    ours = model.get_input_embeddings().weight
    theirs = random.get_input_embeddings().weight
    used = np.zeros(len(ours), bool)
    used[np.unique(np.load(inputs[1] / "passages" / "tokens.npy"))] = True
    assert 0 < used.sum() < len(ours)
    assert torch.equal(ours[~used], theirs[~used])  # special tokens, and tokens that never occur
    torch.testing.assert_close(ours[used].norm(dim=1), torch.full((int(used.sum()),), 0.07 * 4), rtol=1e-5, atol=0)
    counted, decomposed = ([call[:2] for call in calls if call[2].startswith(unit)] for unit in ("tokens", "singular"))
    assert counted[-1] == (200 * 30, 200 * 30)
    assert decomposed == [(0, 1), (1, 1)]
    others = {name for name in model.state_dict() if "word_embeddings" not in name and "decoder.weight" not in name}
    assert all(torch.equal(model.state_dict()[name], random.state_dict()[name]) for name in others)


def test_a_configured_checkpoint_is_used_unchanged(inputs, tmp_path):
    source, _ = run(inputs, tmp_path / "given")
    head = {"layer.weight": torch.randn(4, 4)}
    save_checkpoint(tmp_path / "with_head", source, inputs[0], head)
    model, metrics = run(inputs, tmp_path / "out", checkpoint=tmp_path / "with_head", layers=9, hidden_size=18)
    assert all(torch.equal(model.state_dict()[name], x) for name, x in source.state_dict().items())
    assert torch.equal(load_head(tmp_path / "out")["layer.weight"], head["layer.weight"])
    assert (metrics["head"], metrics["layers"]) == ("kept", 2)


def test_another_padding_token_is_refused(inputs, tmp_path):
    """Hugging Face's RoBERTa would read another token as padding."""
    model, _ = run(inputs, tmp_path / "first", architecture="roberta")
    model.config.pad_token_id = 3
    save_checkpoint(tmp_path / "start", model, inputs[0])
    with pytest.raises(InputError, match=r"its pad_token_id is 3, the tokenizer's padding token has id 0$"):
        run(inputs, tmp_path / "out", checkpoint=tmp_path / "start")


def test_another_vocabulary_is_refused(inputs, tmp_path):
    model, _ = run(inputs, tmp_path / "given")
    vocabulary = stage.read_tokenizer(inputs[0]).get_vocab()
    entries = sorted(vocabulary, key=vocabulary.__getitem__)
    entries[-1], entries[-2] = entries[-2], entries[-1]
    normal = wordpiece.Normal(lowercase=True, split_identifiers=False, drop_rules=False)
    wordpiece.build_tokenizer(entries, normal).save(str(tmp_path / "given" / "tokenizer.json"))
    with pytest.raises(InputError, match=rf"initial.checkpoint .*given: .* entry {len(entries) - 2}, "):
        run(inputs, tmp_path / "out", checkpoint=tmp_path / "given")
    wordpiece.build_tokenizer(entries[:-1], normal).save(str(tmp_path / "shorter.json"))
    shorter = tmp_path / "shorter"
    shorter.mkdir()
    (tmp_path / "shorter.json").rename(shorter / "tokenizer.json")
    n = len(entries)
    with pytest.raises(InputError, match=rf"its vocabulary has {n} entries, the tokenizer's {n - 1}"):
        run((shorter, inputs[1]), tmp_path / "out2", checkpoint=tmp_path / "given")
    assert model.config.vocab_size == n


def test_a_model_may_have_more_embeddings_than_its_tokenizer_has_entries(inputs, tmp_path):
    model, _ = run(inputs, tmp_path / "given")
    entries = model.config.vocab_size
    torch.manual_seed(0)
    padded = BertForMaskedLM(BertConfig(**{**model.config.to_dict(), "vocab_size": entries + 3}))
    save_checkpoint(tmp_path / "padded", padded, inputs[0])
    taken, _ = run(inputs, tmp_path / "taken", checkpoint=tmp_path / "padded")
    assert taken.config.vocab_size == entries + 3
    assert all(torch.equal(taken.state_dict()[name], x) for name, x in padded.state_dict().items())
    (tmp_path / "padded" / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=rf"its vocabulary has {entries + 3} entries, the tokenizer's {entries}"):
        run(inputs, tmp_path / "out", checkpoint=tmp_path / "padded")


def test_bad_shapes_name_their_field():
    with pytest.raises(ValidationError, match=r"heads \(3\) must divide hidden_size \(16\)"):
        InitialConfig(**{**SCRATCH, "heads": 3})
    with pytest.raises(ValidationError, match="pretrained and checkpoint are both set"):
        InitialConfig(**{**SCRATCH, "pretrained": "bert-base-uncased", "checkpoint": Path("x")})


def test_a_model_neither_cached_nor_reachable_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert missing(InitialConfig(**{**SCRATCH, "pretrained": "someone/model", "revision": "v2"})) == [
        "model someone/model is not on this machine: `hf download someone/model --revision v2`, "
        "or set initial.checkpoint to a local folder"
    ]


def test_a_cached_model_needs_no_network(inputs, tmp_path, monkeypatch):
    source, _ = run(inputs, tmp_path / "given")
    snapshots = tmp_path / "hub" / "models--someone--model" / "snapshots"
    snapshots.mkdir(parents=True)
    (tmp_path / "given").rename(snapshots / "c0ffee")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model, _ = run(inputs, tmp_path / "out", pretrained="someone/model", revision="c0ffee")
    assert all(torch.equal(model.state_dict()[name], x) for name, x in source.state_dict().items())


def test_a_cached_model_that_cannot_be_built_is_refused_before_any_work(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--some--model" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    run(inputs, snapshot)
    config = InitialConfig(**{**SCRATCH, "pretrained": "some/model", "revision": "abc"})
    assert missing(config) == []
    own = json.loads((snapshot / "config.json").read_text())
    (snapshot / "config.json").write_text(json.dumps({**own, "hidden_act": "softplus"}))
    (line,) = missing(config)
    assert line.startswith("initial.pretrained: ")
    assert "config.json: hidden_act 'softplus' is not supported" in line
    (snapshot / "config.json").write_text(json.dumps({**own, "num_hidden_layers": 5}))
    (line,) = missing(config)
    assert re.search(r"config\.json: num_hidden_layers is 5, but the weights have \d layers$", line)


def test_known_activations_are_those_of_transformers():
    assert ACT2FN.keys() >= {*ACTIVATIONS}


def test_an_embedding_model_needs_no_mlm_head(inputs, tmp_path):
    """It is used unchanged, or gets a head of random weights."""
    run(inputs, tmp_path / "first")
    model = BertModel.from_pretrained(tmp_path / "first", add_pooling_layer=False)
    save_checkpoint(tmp_path / "bare", model, tmp_path / "first")
    config = InitialConfig(**{**SCRATCH, "checkpoint": tmp_path / "bare"})
    assert initial(config, *inputs, work(tmp_path / "taken"), ENCODER)["mlm_head"] == "none"
    before, after = (load_encoder(tmp_path / name).state_dict() for name in ("first", "taken"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(InputError, match="lacks weight cls"):
        load_backbone_for_mlm(tmp_path / "taken")

    run(inputs, tmp_path / "headed", checkpoint=tmp_path / "bare", new_mlm_head=True)
    headed = load_backbone_for_mlm(tmp_path / "headed")
    assert headed.get_output_embeddings().weight is headed.get_input_embeddings().weight
    after = headed.base_model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    run(inputs, tmp_path / "again", checkpoint=tmp_path / "bare", new_mlm_head=True)
    names = ("headed", "again")
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in names)
    assert one == other


@pytest.mark.parametrize(("fields", "notice"), [
    ({}, "encoder.pooling is 'cls', but 'mean' in the model's folder\nencoder.normalise is False, but True in"),
    ({"pooling": "mean", "normalise": True}, None),
    ({"pooling": "mean", "normalise": True, "passage_prefix": "text: "}, None),
    ({"pooling": "mean", "normalise": True, "question_prefix": "ask: "}, "is 'ask: ', but 'query: ' in"),
])  # fmt: skip
def test_a_notice_names_settings_that_differ_from_the_models_folder(inputs, tmp_path, fields, notice):
    model, _ = run(inputs, tmp_path / "first")
    vector = Vector("mean", normalise=True, question_prefix="query: " if "question_prefix" in fields else "")
    save_checkpoint(tmp_path / "ready", model, inputs[0], vector=vector)
    config = InitialConfig(**{**SCRATCH, "checkpoint": tmp_path / "ready"})
    reported = initial(config, *inputs, work(tmp_path / "out"), ENCODER.model_copy(update=fields)).get("notice")
    assert notice in reported if notice else reported is None


@pytest.mark.parametrize(("weight", "value"), [("encoder.layer.1.output.dense.bias", "nan"), ("head.x", "-inf")])
def test_weights_that_are_not_finite_are_named_when_the_model_is_loaded(inputs, tmp_path, weight, value):
    model, _ = run(inputs, tmp_path / "first")
    head = {"x": torch.zeros(3)} if weight == "head.x" else None
    faulty = head["x"] if head else model.get_parameter(f"bert.{weight}")
    faulty.data[1] = float(value)
    save_checkpoint(tmp_path / "given", model, inputs[0], head)
    name = "x" if head else f"bert.{weight}"
    line = f"{tmp_path / 'given'}: the model is damaged: weight {name} has NaN or infinite numbers"
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        run(inputs, tmp_path / "out", checkpoint=tmp_path / "given")
    if head is None:
        config = AdoptConfig(checkpoint=tmp_path / "given", pooling="cls", normalise=False)
        with pytest.raises(InputError, match=re.escape(line.replace("bert.", ""))):
            adopt(config, inputs[0], work(tmp_path / "adopted"))


def test_a_projection_that_is_not_finite_is_named(inputs, tmp_path):
    model, _ = run(inputs, tmp_path / "first")
    weight_ED = torch.full((4, model.config.hidden_size), float("inf"))
    save_checkpoint(tmp_path / "given", model, inputs[0], vector=Vector("cls", projection=Dense(weight_ED)))
    with pytest.raises(
        InputError, match=r"model\.safetensors: the projection is damaged: linear\.weight has NaN or inf"
    ):
        adopt(
            AdoptConfig(checkpoint=tmp_path / "given", pooling="cls", normalise=False), inputs[0], work(tmp_path / "x")
        )
