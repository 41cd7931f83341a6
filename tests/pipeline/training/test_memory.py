"""What `auto` means for token_budget and gradient_cache on GPUs of several sizes, and the estimates behind it."""

import logging
from typing import Any

import pytest
import torch
from machines import make_machine
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from pipeline.modeling import transformer
from pipeline.runtime import precision
from pipeline.training import memory

GIB = 1 << 30
KIB = 1 << 10
DRIVER = 0.5 * GIB
"""Memory that a CUDA context takes."""


def config(layers: int = 12, size: int = 768, dropout: float = 0.1) -> BertConfig:
    return BertConfig(
        num_hidden_layers=layers,
        hidden_size=size,
        num_attention_heads=size // 64,
        intermediate_size=4 * size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def model(shape: BertConfig, head_layers: int = 2) -> nn.ModuleDict:
    """A model without numbers: only its shapes and layers count."""
    with torch.device("meta"):
        lm = BertForMaskedLM(shape)
        return nn.ModuleDict({"lm": lm, "head": transformer.new_head(lm, head_layers)})


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    """card(gigabytes, module): a GPU that holds only the weights of `module`. Returns its free bytes."""

    def insert(gigabytes: int, module: nn.Module) -> int:
        free = int(gigabytes * 1e9 - DRIVER - 4 * parameters(module))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (free, int(gigabytes * 1e9)))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 0)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: 0)
        return free

    return insert


# Bytes per token, in KiB, of the live tensors of the real functions on a fake CUDA device: the graph of the backbone
# of one chunk of 34,525 tokens, the peak of its Condenser update, and that of encoding it.
MEASURED = [
    (12, 768, 0.1, 298.1, 356.2, 31.5),
    (12, 768, 0.0, 280.6, 336.6, 28.5),
    (24, 1024, 0.1, 817.0, 888.6, 52.8),
    (24, 1024, 0.0, 769.7, 839.0, 48.8),
    (4, 512, 0.1, 59.9, 104.0, 18.6),
    (4, 512, 0.0, 56.3, 99.2, 16.6),
    (4, 256, 0.1, 29.8, 60.5, 9.2),
]


@pytest.mark.parametrize(("layers", "size", "dropout", "kept", "chunk", "forward"), MEASURED)
def test_estimates_are_within_15_percent_of_live_memory(layers, size, dropout, kept, chunk, forward):
    shape, tokens = config(layers, size, dropout), 34_525
    cast = memory.cast_bytes(shape) / tokens
    assert memory.kept_bytes(shape, dropout > 0) + cast == pytest.approx(kept * KIB, rel=0.15)
    assert memory.chunk_bytes(shape, dropout > 0) + cast == pytest.approx(chunk * KIB, rel=0.15)
    assert memory.pass_bytes(shape) + cast == pytest.approx(forward * KIB, rel=0.15)


@pytest.mark.parametrize(
    ("gigabytes", "least", "most"),
    [(8, 9_000, 16_000), (16, 28_000, 34_000), (24, 45_000, 53_000), (80, 65_536, 65_536)],
)
def test_a_pass_of_bert_base_fits_into_the_gpu(card, gigabytes, least, most):
    module = model(config())
    free = card(gigabytes, module)
    budget = memory.resolve_auto(make_machine(token_budget="auto"), "cuda", module["lm"].config, module).budget
    assert least <= budget <= most
    need = 12 * parameters(module) + memory.cast_bytes(config()) + budget * memory.chunk_bytes(config(), True)
    assert need < 0.95 * free


@pytest.mark.parametrize("gigabytes", [8, 16, 24, 80])
def test_encoding_needs_no_smaller_passes_on_a_small_gpu(card, gigabytes):
    card(gigabytes, model(config()))
    assert memory.encoding_budget("auto", "cuda", config()) == memory.CUDA_BUDGET


def test_float32_takes_twice_the_bytes(card, monkeypatch):
    """Of the attention analysis too, whose stage is float32 on every device."""
    card(2, model(config()))
    low = memory.encoding_budget("auto", "cuda", config())
    monkeypatch.setattr(precision, "_precision", "float32")
    assert memory.encoding_budget("auto", "cuda", config()) < 0.7 * low < memory.CUDA_BUDGET


def test_a_large_model_gets_smaller_passes(card):
    base, large = model(config()), model(config(24, 1024))
    budgets = []
    for module in (base, large):
        card(16, module)
        budgets.append(memory.training_budget("auto", "cuda", module["lm"].config, module))
    assert memory.STEP <= budgets[1] < budgets[0] / 2


def test_a_full_gpu_gets_the_least_pass(card, monkeypatch):
    module = model(config())
    card(80, module)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (GIB, 80 * GIB))
    assert memory.training_budget("auto", "cuda", module["lm"].config, module) == memory.STEP


def test_ranks_agree_on_the_smallest_number(card, monkeypatch):
    monkeypatch.setattr(memory.ranks, "world", lambda: 3)
    monkeypatch.setattr(memory.ranks, "rank", lambda: 1)
    monkeypatch.setattr(memory.ranks, "sum_over_ranks", lambda x: x + torch.tensor([9, 0, 5]))
    assert memory.least_of_ranks(7) == 5


@pytest.mark.parametrize(
    ("choice", "device", "expected"),
    [("auto", "cpu", 2000), ("auto", "mps", 8192), (77, "cpu", 77), (77, "mps", 77), (77, "cuda", 77)],
)
def test_a_number_is_obeyed_and_a_cpu_has_its_own(choice, device, expected):
    module = model(config())
    settled = memory.resolve_auto(make_machine(token_budget=choice), device, module["lm"].config, module)
    assert settled.budget == expected
    assert memory.encoding_budget(choice, device, module["lm"].config) == expected


def settled_cache(module: nn.Module, most_tokens: int, **fields: Any) -> str:
    machine = make_machine(token_budget="auto", **fields)
    return memory.resolve_auto(machine, "cuda", module["lm"].config, module, most_tokens).gradient_cache


def test_the_papers_batch_needs_no_cache_on_four_gpus(card, caplog, monkeypatch):
    """2,048 documents with two spans of 128 tokens: 131,072 tokens on each of four GPUs of 80 GB."""
    module, tokens = model(config()), 2048 * 2 * 128
    card(80, module)
    with caplog.at_level(logging.INFO, "pipeline"):
        assert settled_cache(module, tokens) == "always"
        monkeypatch.setattr(memory.ranks, "world", lambda: 4)
        monkeypatch.setattr(memory, "least_of_ranks", lambda number: number)
        assert settled_cache(module, tokens) == "never"
    on, off = [record.getMessage() for record in caplog.records]
    assert on.startswith("gradient cache on: the graphs of up to 524,288 tokens need ")
    assert off.startswith("gradient cache off: the graphs of up to 131,072 tokens need ")
    assert "GiB" in off


def test_one_chunk_never_needs_a_cache(card):
    module = model(config())
    card(8, module)
    assert settled_cache(module, 2000) == "never"
    assert settled_cache(module, 200_000) == "always"


def test_the_choice_is_left_to_updates_on_a_cpu_and_to_the_recipe():
    module = model(config())
    for cache, device in (("auto", "cpu"), ("auto", "mps"), ("always", "cuda"), ("never", "cuda")):
        machine = make_machine(gradient_cache=cache)
        assert memory.resolve_auto(machine, device, module["lm"].config, module, 10**9).gradient_cache == cache


def test_graphs_that_are_kept_leave_room_for_a_chunk(card):
    module, shape = model(config()), config()
    free = card(80, module)
    usable = memory.usable_bytes(module)
    assert usable < 0.85 * free
    tokens = max(t for t in range(32_768, 400_000, 1024) if memory.graphs_bytes(shape, t, 32_768, True) <= usable)
    assert tokens * memory.kept_bytes(shape, True) < usable - 32_768 * 60 * KIB
    assert tokens > 150_000  # 55,339 with four bytes for each number and half of the memory
