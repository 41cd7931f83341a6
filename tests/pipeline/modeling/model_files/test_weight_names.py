"""Weights that a file lacks are found from its header; adapters and quantised weights are refused before any work."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import updates
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from pipeline.errors import InputError
from pipeline.modeling.checkpoint import load_encoder
from pipeline.modeling.model_files.model_config import TYPES, model_config, own_name
from pipeline.modeling.model_files.weight_names import PARTS, needed_weights
from pipeline.modeling.model_files.weight_shapes import check_weights


def small_config(kind: str) -> Any:
    fields = {own_name(kind, name): value for name, value in updates.SMALL.items()}
    return AutoConfig.for_model(kind, pad_token_id=1, **fields)


def rewrite(folder: Path, without: str = "-", renamed: Mapping[str, str] = MappingProxyType({})) -> None:
    """Writes the weights again without those whose name contains `without`; parts of names are `renamed`."""
    path = folder / "model.safetensors"
    weights = {name: x for name, x in load_file(path).items() if without not in name}
    for new, old in renamed.items():
        weights = {name.replace(new, old): x for name, x in weights.items()}
    save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize("kind", TYPES)
def test_the_needed_names_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    assert set(PARTS) == set(TYPES)
    model = AutoModel.from_config(small_config(kind))
    model.save_pretrained(tmp_path)
    names = {name for name in model.state_dict() if not name.startswith("pooler.")}
    extra = names - set(needed_weights(model_config(tmp_path)))
    assert set(needed_weights(model_config(tmp_path))) <= names
    uncertain = {
        "modernbert": {f"layers.{i}.attn_norm.weight" for i in range(1, 9)},
        "electra": {"embeddings_project.weight", "embeddings_project.bias"},
    }
    assert extra <= uncertain.get(kind, set())


@pytest.mark.parametrize("kind", TYPES)
def test_a_missing_weight_is_named_with_and_without_a_prefix(tmp_path: Path, kind: str) -> None:
    for number, model_class in enumerate((AutoModel, AutoModelForMaskedLM)):
        folder = tmp_path / str(number)
        model_class.from_config(small_config(kind)).save_pretrained(folder)
        config = model_config(folder)
        check_weights(folder, config)
        for absent in (needed_weights(config)[1], needed_weights(config)[-1]):
            whole = (folder / "model.safetensors").read_bytes()
            rewrite(folder, without=absent)
            with pytest.raises(InputError) as error:
                check_weights(folder, config)
            assert str(error.value) == f"{folder}: the model lacks weight {absent}"
            (folder / "model.safetensors").write_bytes(whole)
    rewrite(folder, without="embeddings")
    with pytest.raises(InputError, match=r"lacks weight embeddings\.\w+\.weight and \d more$"):
        check_weights(folder, config)


def test_old_names_of_norms_are_the_same_weights(tmp_path: Path) -> None:
    AutoModel.from_config(small_config("bert")).save_pretrained(tmp_path)
    rewrite(tmp_path, renamed={"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"})
    check_weights(tmp_path, model_config(tmp_path))
    load_encoder(tmp_path)


def test_an_adapter_and_quantised_weights_are_refused(tmp_path: Path) -> None:
    AutoModel.from_config(small_config("bert")).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    own = json.loads(path.read_text())
    path.write_text(json.dumps({**own, "quantization_config": None}))
    model_config(tmp_path)
    path.write_text(json.dumps({**own, "quantization_config": {"quant_method": "bitsandbytes"}}))
    with pytest.raises(InputError, match=r"config\.json: quantization_config: quantised weights are not supported"):
        model_config(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    for _ in range(2):
        with pytest.raises(InputError, match=r"adapter_config\.json: an adapter .*merge_and_unload"):
            model_config(tmp_path)
        path.unlink(missing_ok=True)  # many adapters have no config.json
