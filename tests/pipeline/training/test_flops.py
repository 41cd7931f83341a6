"""Counted operations against torch's own counter."""

import numpy as np
import pytest
import torch
from machines import make_machine
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForMaskedLM

from pipeline.modeling import packing, transformer
from pipeline.pretrain import masking
from pipeline.pretrain.objectives import objective
from pipeline.tokenization.token_files import Ragged, Specials
from pipeline.training import flops, memory

SPECIALS = Specials(vocab_size=60, pad=0, unk=1, cls=2, sep=3, mask=4)


@pytest.fixture(scope="module")
def model_and_batch():
    rng = np.random.default_rng(0)
    texts = Ragged(rng.integers(5, 60, 9000).astype(np.uint16), np.array([0, 9000]), rng.random(9000) < 0.7, None)
    length_S = rng.integers(5, 60, 40)
    begin_S, row_S, machine = np.arange(40) * 100, np.arange(40), make_machine(token_budget=10**6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PADDED_SCORES", 0)  # torch counts padding too
        batch = masking.masked_batch(texts, begin_S, length_S, row_S, 0.15, 1, 2, SPECIALS, machine, "cpu")
    lm = BertForMaskedLM(BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
                                    intermediate_size=64, max_position_embeddings=64)).eval()  # fmt: skip
    return lm, batch


@pytest.mark.parametrize(("name", "layers"), [("condenser", 2), ("mlm", 0), ("retromae", 1), ("contrastive_only", 2)])
def test_operations_equal_those_that_torch_counts(model_and_batch, name, layers):
    lm, batch = model_and_batch
    goal, head, chunk = objective(name), transformer.new_head(lm, layers).eval(), batch.chunks[0]
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        states = transformer.backbone(lm, chunk, 1, lambda *_: None, masked=bool(goal.names))
        goal.losses(lm, head, states, chunk, batch, lambda *_: None)
    counted = flops.backbone(lm.config, chunk, bool(goal.names)) + goal.operations(lm.config, layers, chunk)
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA GB200", 2500e12),
        ("NVIDIA B300 SXM6 AC", 2250e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA A30", 165e12),
        ("NVIDIA RTX A6000", 155e12),
        ("NVIDIA RTX 6000 Ada Generation", 364e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40", 181e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA GeForce RTX 5090", 209e12),
        ("AMD Instinct MI300X", 1307e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA RTX A4000", None),
        ("Tesla T4", None),
    ],
)
def test_a_gpu_has_the_peak_of_its_data_sheet(name, peak):
    assert flops.data_sheet(name) == peak


def test_a_processor_has_a_peak():
    assert 1e8 < flops.peak("cpu") < 1e13


def test_a_macs_gpu_has_no_known_peak():
    assert flops.peak("mps") is None


def test_the_cache_is_chosen_by_memory(model_and_batch, monkeypatch):
    lm, batch = model_and_batch
    many = batch._replace(chunks=batch.chunks * 2)
    need = memory.bytes_per_token(lm.config, 61) * sum(chunk.every.size for chunk in many.chunks)
    for free, keeps in ((3 * need, True), (need, False)):
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: free)
        assert memory.keeps_graphs(lm, many, "auto") == keeps
        assert memory.keeps_graphs(lm, batch, "auto")  # one chunk needs no cache
        assert memory.keeps_graphs(lm, many, "never")
        assert not memory.keeps_graphs(lm, many, "always")
    monkeypatch.undo()
    assert memory.free_bytes("cpu") > 2**20


def test_ranks_share_the_free_memory(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 7_000_000)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert memory.free_bytes("cpu") == 3_500_000
