"""The model and the update against numbers from the authors' own code (tests/golden)."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from pipeline import model, pretraining
from pipeline.batches import Batch, Chunk

GOLDEN = Path(__file__).parents[1] / "golden"
CLASSES = {"bert": (BertConfig, BertForMaskedLM), "roberta": (RobertaConfig, RobertaForMaskedLM)}


class Golden:
    def __init__(self, name: str):
        self.facts = json.loads((GOLDEN / f"{name}_condenser.json").read_text())
        self.tensors = load_file(GOLDEN / f"{name}_condenser.safetensors")
        make_config, make_lm = CLASSES[name]
        lm = make_lm(make_config(**self.facts["config"]))
        weights = self.part("weights.lm.")
        missing, unexpected = lm.load_state_dict(weights, strict=False)
        assert not unexpected
        # What the file leaves out is tied to what it holds.
        assert all(lm.state_dict()[key].shape == lm.state_dict()[tied(key)].shape for key in missing)
        lm.tie_weights()
        head = model.new_head(lm, self.facts["n_head_layers"])
        head.load_state_dict(self.part("weights.c_head."))
        self.module = nn.ModuleDict({"lm": lm, "head": head}).eval()

    def part(self, prefix: str) -> dict[str, torch.Tensor]:
        return {key.removeprefix(prefix): x for key, x in self.tensors.items() if key.startswith(prefix)}

    def batch(self, size: int) -> Batch:
        ids, attention, labels = (self.tensors[f"inputs.{x}"] for x in ("input_ids", "attention_mask", "labels"))
        chunks = []
        for number, rows in enumerate(torch.arange(len(ids)).split(size)):
            masked = torch.nonzero(labels[rows].flatten() != -100).flatten()
            chunks.append(
                Chunk(number, rows, ids[rows], attention[rows].bool(), masked, labels[rows].flatten()[masked])
            )
        return Batch(chunks, len(ids), int((labels != -100).sum()), int(attention.sum()))

    def update(self, size: int, pairs: bool, cached: bool) -> tuple[dict, dict[str, torch.Tensor]]:
        self.module.zero_grad()
        skip_from = self.facts["skip_from"]
        parts = pretraining.update(
            self.module,
            self.batch(size),
            pretraining.CONDENSER,
            skip_from=skip_from,
            pairs=pairs,
            cached=cached,
            key=(0, 0),
            device="cpu",
        )
        return parts, {name: p.grad.clone() for name, p in self.module.named_parameters()}


def tied(key: str) -> str:
    return {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }[key]


@pytest.fixture(params=CLASSES)
def golden(request) -> Golden:
    return Golden(request.param)


def assert_gradients(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    largest = max(float(x.abs().max()) for x in expected.values())
    for name, x in expected.items():
        bound = max(1e-4 * float(x.abs().max()), 1e-6 * largest)
        assert float((actual[name] - x).abs().max()) <= bound, name


def expected_gradients(golden: Golden, kind: str) -> dict[str, torch.Tensor]:
    renamed = {
        key.replace("c_head.", "head.") if key.startswith("c_head.") else "lm." + key.removeprefix("lm."): x
        for key, x in golden.part(f"grads_{kind}.").items()
    }
    own = {name for name, _ in golden.module.named_parameters()}
    assert own <= renamed.keys()
    return {name: renamed[name] for name in own}


def test_states_and_losses_are_the_authors(golden):
    chunk = golden.batch(12).chunks[0]
    states = model.backbone(golden.module["lm"], chunk.ids_BL, chunk.attention_BL, golden.facts["skip_from"])
    torch.testing.assert_close(states.late_BLD[:, 0], golden.tensors["expected.late_cls"], rtol=1e-5, atol=1e-5)
    parts, gradients = golden.update(12, pairs=False, cached=False)
    for name in ("head_mlm", "late_mlm"):
        assert float(parts[name]) == pytest.approx(golden.facts["expected"][f"{name}_loss"], rel=1e-5)
    assert_gradients(gradients, expected_gradients(golden, "condenser"))


@pytest.mark.parametrize("size", [1, 5, 8, 12])
@pytest.mark.parametrize("cached", [True, False])
def test_cocondenser_at_any_chunk_size_is_the_authors(golden, size, cached):
    parts, gradients = golden.update(size, pairs=True, cached=cached)
    expected = golden.facts["expected"]
    assert float(parts["contrastive"]) == pytest.approx(expected["contrastive_loss"], rel=1e-5)
    total = float(parts["head_mlm"] + parts["late_mlm"] + parts["contrastive"])
    assert total == pytest.approx(expected["cocondenser_loss"], rel=1e-5)
    assert_gradients(gradients, expected_gradients(golden, "cocondenser"))


def test_cache_replays_dropout(golden):
    """With dropout on, cached and un-cached see the same network in both passes."""
    golden.module.train()
    plain, plain_gradients = golden.update(5, pairs=True, cached=False)
    cached, cached_gradients = golden.update(5, pairs=True, cached=True)
    assert {k: float(v) for k, v in plain.items()} == {k: float(v) for k, v in cached.items()}
    assert all(torch.equal(plain_gradients[name], cached_gradients[name]) for name in plain_gradients)
    golden.module.eval()
    assert float(golden.update(5, pairs=True, cached=True)[0]["contrastive"]) != float(cached["contrastive"])


def test_early_states_are_hugging_faces_hidden_states(golden):
    chunk, lm = golden.batch(12).chunks[0], golden.module["lm"]
    with torch.no_grad():
        output = lm.base_model(chunk.ids_BL, chunk.attention_BL.long(), output_hidden_states=True)
        for skip_from, expected in enumerate(output.hidden_states):
            states = model.backbone(lm, chunk.ids_BL, chunk.attention_BL, skip_from)
            torch.testing.assert_close(
                states.early_BLD[chunk.attention_BL], expected[chunk.attention_BL], rtol=1e-5, atol=1e-5
            )
