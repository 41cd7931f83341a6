"""Functions that torch.compile fuses, compiled for the CPU: a GPU's compiler needs one."""

import logging

import pytest
import torch

from pipeline.modeling import fused, layers

SIZES = (40, 7, 90, 33)


@pytest.fixture
def compiled_on_cpu(monkeypatch):
    monkeypatch.setattr(fused, "is_compiled", lambda x: True)
    torch._dynamo.reset()


def arguments(rows, dropout, device="cpu"):
    generator = torch.Generator().manual_seed(rows)
    x_RD, residual_RD = (torch.randn(rows, 16, generator=generator).bfloat16() for _ in range(2))
    x_bias_D, weight_D, bias_D = (torch.randn(16, generator=generator) for _ in range(3))
    tensors = (x.to(device) for x in (x_RD, residual_RD, x_bias_D, weight_D, bias_D))
    return *tensors, 1e-5, dropout, torch.float32


@pytest.mark.slow
def test_one_compilation_serves_all_sizes(compiled_on_cpu):
    for rows in SIZES:
        given = arguments(rows, 0.0)
        actual = layers._add_norm(*given)
        torch.testing.assert_close(actual, layers._add_norm.__wrapped__(*given), rtol=0.02, atol=0.02)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
def test_passes_with_and_without_a_graph_drop_the_same_numbers(compiled_on_cpu):
    """The gradient cache computes each chunk twice."""
    for rows in SIZES:
        x_RD, *others = arguments(rows, 0.3)
        torch.manual_seed(rows)
        with torch.no_grad():
            first = layers._add_norm(x_RD, *others)
        torch.manual_seed(rows)
        second = layers._add_norm(x_RD.requires_grad_(), *others)
        assert torch.equal(first, second.detach())
        torch.manual_seed(rows + 1)
        assert not torch.equal(first, layers._add_norm(x_RD, *others).detach())


@pytest.mark.gpu
def test_both_passes_drop_the_same_numbers_on_a_gpu():
    """The kernels of the two passes differ, and so may the last bits of their sums."""
    for rows in SIZES:
        x_RD, *others = arguments(rows, 0.3, "cuda")
        torch.manual_seed(rows)
        with torch.no_grad():
            first = layers._add_norm(x_RD, *others)
        torch.manual_seed(rows)
        second = layers._add_norm(x_RD.requires_grad_(), *others)
        torch.testing.assert_close(first, second.detach(), rtol=1e-3, atol=1e-3)


def test_a_cpu_compiles_nothing(monkeypatch):
    monkeypatch.setattr(fused, "compiled", None)
    layers._add_norm(*arguments(5, 0.0))


def test_a_missing_compiler_is_one_line(monkeypatch, caplog):
    monkeypatch.setattr(fused.shutil, "which", lambda name: None)
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: False)
    monkeypatch.delenv("CC", raising=False)
    fused.has_compiler.cache_clear()
    with caplog.at_level(logging.WARNING, "pipeline"):
        assert not fused.has_compiler()
        assert not fused.has_compiler()
    fused.has_compiler.cache_clear()
    assert [record.getMessage() for record in caplog.records] == [
        "without Triton for this GPU, a C compiler, training and encoding on a GPU are slower"
    ]
