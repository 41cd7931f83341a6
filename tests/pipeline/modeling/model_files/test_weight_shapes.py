"""Contradictions between config.json and the weights are found without loading a weight."""

import json
from pathlib import Path
from typing import Any

import pytest
import updates
from transformers import AutoConfig, AutoModelForMaskedLM

from pipeline.errors import InputError
from pipeline.modeling.model_files.model_config import AFTER_PADDING, TYPES, model_config, own_name
from pipeline.modeling.model_files.weight_shapes import check_weights, read_shapes

OTHERS = ("albert", "deberta-v2", "nomic_bert")
"""Types without packed layers."""


def saved(folder: Path, kind: str, shard_size: str = "1TB") -> dict[str, Any]:
    """Writes a small model; returns its config.json."""
    fields = {own_name(kind, name): value for name, value in updates.SMALL.items()}
    more = {"electra": {"embedding_size": 24}}.get(kind, {})
    config = AutoConfig.for_model(kind, pad_token_id=1, **fields, **more)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder, max_shard_size=shard_size)
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def change(folder: Path, **fields: int) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("kind", [*TYPES, *OTHERS])
def test_a_field_that_contradicts_the_weights_is_named_with_both_values(tmp_path: Path, kind: str) -> None:
    own = saved(tmp_path, kind)
    check_weights(tmp_path, model_config(tmp_path))
    layers, hidden = own_name(kind, "num_hidden_layers"), own_name(kind, "hidden_size")
    units = {layers: "layers", "vocab_size": "embeddings"}
    if kind == "albert":  # its layers share their weights
        del units[layers]
    if kind in TYPES:
        units |= {hidden: "dimensions", own_name(kind, "intermediate_size"): "inner dimensions"}
        units |= {"max_position_embeddings": "positions"} if kind != "modernbert" else {}
        units |= {"embedding_size": "dimensions per embedding"} if kind == "electra" else {}
        units |= {"relative_attention_num_buckets": "buckets"} if kind == "mpnet" else {}
        units |= {"type_vocab_size": "token types"} if kind == "bert" or kind in AFTER_PADDING[:3] else {}
    for name, unit in units.items():
        for wrong in (own[name] * 2, own[name] * 4):
            change(tmp_path, **{name: wrong})
            line = f"config.json: {name} is {wrong}, but the weights have {own[name]} {unit}$"
            with pytest.raises(InputError, match=line):
                check_weights(tmp_path, model_config(tmp_path))
        change(tmp_path, **{name: own[name]})


def test_fewer_layers_and_positions_than_the_weights_have(tmp_path: Path) -> None:
    own = saved(tmp_path, "bert")
    for name in ("num_hidden_layers", "max_position_embeddings"):
        change(tmp_path, **{name: own[name] - 1})
        with pytest.raises(InputError, match=f"{name} is {own[name] - 1}, but the weights have {own[name]} "):
            check_weights(tmp_path, model_config(tmp_path))
        change(tmp_path, **{name: own[name]})


def test_shards_are_read_together_and_a_damaged_header_is_one_line(tmp_path: Path) -> None:
    saved(tmp_path / "shards", "bert", shard_size="10KB")
    assert len([*(tmp_path / "shards").glob("model-*.safetensors")]) > 1
    check_weights(tmp_path / "shards", model_config(tmp_path / "shards"))
    saved(tmp_path / "one", "bert")
    assert len(read_shapes(tmp_path / "one")) == len(read_shapes(tmp_path / "shards"))
    (tmp_path / "one" / "model.safetensors").write_bytes(b"\x08" + b"\x00" * 7 + b"notjson!")
    with pytest.raises(InputError, match=r"model\.safetensors: "):
        read_shapes(tmp_path / "one")
