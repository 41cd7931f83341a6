"""The loader without transformers gives the encoder of the loader with it."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertModel, RobertaConfig, RobertaForMaskedLM

from pipeline.errors import InputError
from pipeline.modeling.biencoder import Encoder, encode_rows
from pipeline.modeling.checkpoint import load_encoder
from pipeline.modeling.frozen import FrozenEncoder, load_frozen

SIZES = {
    "vocab_size": 90,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}


def saved(folder, model):
    """The folder, with the model's weights all random."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return folder


def vectors(model, pooling):
    rows = [np.arange(5, 5 + length) for length in (9, 30, 9, 17, 2)]
    return encode_rows(Encoder(model, pooling), rows, 60)


MODELS = {
    "encoder": lambda: BertModel(BertConfig(**SIZES), add_pooling_layer=False),
    "pooler": lambda: BertModel(BertConfig(**SIZES)),
    "masked-lm": lambda: BertForMaskedLM(BertConfig(**SIZES)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES)),
}


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", MODELS)
def test_vectors_have_the_bytes_of_those_by_transformers(tmp_path, kind, pooling):
    folder = saved(tmp_path / "model", MODELS[kind]())
    frozen = load_frozen(folder)
    assert isinstance(frozen, FrozenEncoder)
    assert not frozen.training
    assert vectors(frozen, pooling).tobytes() == vectors(load_encoder(folder), pooling).tobytes()


def test_half_precision_is_read_as_float32(tmp_path):
    folder = saved(tmp_path / "model", MODELS["encoder"]().half())
    frozen = load_frozen(folder)
    assert isinstance(frozen, FrozenEncoder)
    assert {x.dtype for x in frozen.parameters()} == {torch.float32}
    assert vectors(frozen, "cls").tobytes() == vectors(load_encoder(folder), "cls").tobytes()


def test_transformers_loads_what_is_unusual(tmp_path):
    folder = saved(tmp_path / "model", BertModel(BertConfig(**SIZES, hidden_act="relu"), add_pooling_layer=False))
    assert isinstance(load_frozen(folder), BertModel)
    folder = saved(tmp_path / "two", MODELS["encoder"]())
    config = json.loads((folder / "config.json").read_text())
    del config["layer_norm_eps"]  # transformers has a default
    (folder / "config.json").write_text(json.dumps(config))
    assert isinstance(load_frozen(folder), BertModel)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("encoder.layer.1.output.dense.bias"), "lacks weight encoder.layer.1.output.dense.bias"),
        (lambda w: w.update({"encoder.layer.2.x": torch.zeros(1)}), "unknown weight encoder.layer.2.x"),
        (lambda w: w.update({"embeddings.LayerNorm.bias": torch.zeros(2)}), "wrong shape of weight embeddings.Layer"),
    ],
)
def test_loading_is_strict(tmp_path, change, message):
    folder = saved(tmp_path / "model", MODELS["encoder"]())
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=message):
        load_frozen(folder)


def test_a_damaged_or_missing_file_is_one_line(tmp_path):
    folder = saved(tmp_path / "model", MODELS["encoder"]())
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="no model could be loaded"):
        load_frozen(folder)
    damaged = {name: x.fill_(torch.nan) for name, x in MODELS["encoder"]().state_dict().items()}
    save_file(damaged, path, {"format": "pt"})
    with pytest.raises(InputError, match=r"the model is damaged: weight .* and \d+ more has NaN"):
        load_frozen(folder)
    path.unlink()
    with pytest.raises(InputError, match="no model could be loaded"):
        load_frozen(folder)


def test_encoding_imports_neither_transformers_nor_the_compiler(tmp_path):
    folder = saved(tmp_path / "model", MODELS["encoder"]())
    code = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from pipeline.modeling.biencoder import Encoder, encode_rows\n"
        "from pipeline.modeling.frozen import load_frozen\n"
        "from pipeline.evaluate.attention_entropy import entropy_rows\n"
        f"model = load_frozen(Path({str(folder)!r}))\n"
        "encode_rows(Encoder(model, 'cls'), [np.arange(5, 9)], 60)\n"
        "entropy_rows(model, [np.arange(5, 9)], 60, lambda done: None)\n"
        "print([m for m in ('transformers', 'torch._dynamo', 'scipy', 'pandas') if m in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout.strip() == "[]", process.stderr
