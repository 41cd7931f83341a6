"""The model and the update against numbers from the authors' own code (tests/golden)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from pipeline.modeling import packing, transformer
from pipeline.modeling.packing import Batch, Chunk
from pipeline.pretrain import step
from pipeline.pretrain.objectives import objective

GOLDEN = Path(__file__).parents[2] / "golden"
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
        # A weight that the file lacks is tied to one that it has.
        assert all(lm.state_dict()[key].shape == lm.state_dict()[tied(key)].shape for key in missing)
        lm.tie_weights()
        head = transformer.new_head(lm, self.facts["n_head_layers"])
        head.load_state_dict(self.part("weights.c_head."))
        self.module = nn.ModuleDict({"lm": lm, "head": head}).eval()

    def part(self, prefix: str) -> dict[str, torch.Tensor]:
        return {key.removeprefix(prefix): x for key, x in self.tensors.items() if key.startswith(prefix)}

    def batch(self, size: int) -> Batch:
        """The inputs in chunks of `size`, each in order of length, as packing requires."""
        ids, attention, labels = (self.tensors[f"inputs.{x}"] for x in ("input_ids", "attention_mask", "labels"))
        lengths, chunks = attention.sum(1).numpy(), []
        for number, rows in enumerate(np.split(np.argsort(lengths), range(size, len(lengths), size))):
            real = attention[rows].bool()
            length_B, label_T = lengths[rows], labels[rows][real]
            masked_M = torch.nonzero(label_T != -100).flatten()
            count_B = (labels[rows] != -100).sum(1).numpy()
            chunks.append(
                Chunk(
                    number=number,
                    row_B=torch.from_numpy(rows),
                    ids_T=ids[rows][real],
                    position_T=torch.arange(ids.shape[1]).expand_as(real)[real],
                    label_M=label_T[masked_M],
                    every=packing.packed_rows(length_B, length_B, None, "cpu"),
                    cls=packing.packed_rows(length_B, np.ones_like(length_B), np.cumsum(length_B) - length_B, "cpu"),
                    masked=packing.packed_rows(length_B, count_B, masked_M.numpy(), "cpu"),
                )
            )
        return Batch(chunks, len(ids), int((labels != -100).sum()), int(attention.sum()))

    def update(self, size: int, pairs: bool, cached: bool) -> tuple[dict, dict[str, torch.Tensor]]:
        self.module.zero_grad()
        skip_from = self.facts["skip_from"]
        parts = step.update(
            self.module,
            self.batch(size),
            objective("condenser"),
            skip_from=skip_from,
            pairs=pairs,
            cache="always" if cached else "never",
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
    names = {name for name, _ in golden.module.named_parameters()}
    assert names <= renamed.keys()
    return {name: renamed[name] for name in names}


def states(golden: Golden, chunk: Chunk, skip_from: int) -> transformer.States:
    return transformer.backbone(golden.module["lm"], chunk, skip_from, lambda *_: None)


def test_states_and_losses_equal_the_authors(golden):
    chunk = golden.batch(12).chunks[0]
    expected = golden.tensors["expected.late_cls"][chunk.row_B]
    torch.testing.assert_close(states(golden, chunk, 3).cls_BD, expected, rtol=1e-5, atol=1e-5)
    parts, gradients = golden.update(12, pairs=False, cached=False)
    for name in ("head_mlm", "late_mlm"):
        assert float(parts[name]) == pytest.approx(golden.facts["expected"][f"{name}_loss"], rel=1e-5)
    assert_gradients(gradients, expected_gradients(golden, "condenser"))


@pytest.mark.parametrize("size", [1, 5, 8, 12])
@pytest.mark.parametrize("cached", [True, False])
def test_cocondenser_equals_the_authors_at_any_chunk_size(golden, size, cached):
    parts, gradients = golden.update(size, pairs=True, cached=cached)
    expected = golden.facts["expected"]
    assert float(parts["contrastive"]) == pytest.approx(expected["contrastive_loss"], rel=1e-5)
    total = float(parts["head_mlm"] + parts["late_mlm"] + parts["contrastive"])
    assert total == pytest.approx(expected["cocondenser_loss"], rel=1e-5)
    assert_gradients(gradients, expected_gradients(golden, "cocondenser"))


def test_the_cache_repeats_dropout(golden):
    """With dropout, the cached and the uncached update use the same network in both passes."""
    golden.module.train()
    plain, plain_gradients = golden.update(5, pairs=True, cached=False)
    cached, cached_gradients = golden.update(5, pairs=True, cached=True)
    assert {k: float(v) for k, v in plain.items()} == {k: float(v) for k, v in cached.items()}
    assert all(torch.equal(plain_gradients[name], cached_gradients[name]) for name in plain_gradients)
    golden.module.eval()
    assert float(golden.update(5, pairs=True, cached=True)[0]["contrastive"]) != float(cached["contrastive"])


def test_states_equal_hugging_faces_hidden_states(golden):
    chunk, lm = golden.batch(12).chunks[0], golden.module["lm"]
    ids, attention = (golden.tensors[f"inputs.{x}"][chunk.row_B] for x in ("input_ids", "attention_mask"))
    with torch.no_grad():
        output = lm.base_model(ids, attention, output_hidden_states=True)
        *expected, last = (state[attention.bool()] for state in output.hidden_states)
        for skip_from, early_TD in enumerate(expected):
            ours = states(golden, chunk, skip_from)
            torch.testing.assert_close(ours.early_TD, early_TD, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(ours.cls_BD, last[chunk.cls.at_R], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(ours.late_MD, last[chunk.masked.at_R], rtol=1e-5, atol=1e-5)
