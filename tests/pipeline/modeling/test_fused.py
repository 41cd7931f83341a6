"""Functions that torch.compile fuses, compiled for the CPU: a GPU's compiler needs one."""

import inspect
import logging
import re

import pytest
import torch

from pipeline.modeling import cross_entropy, fused, layers

SIZES = (40, 7, 90, 33)


@pytest.fixture
def compiled_on_cpu(monkeypatch):
    monkeypatch.setattr(fused, "is_compiled", lambda x: True)
    torch._dynamo.reset()


def arguments(rows, device="cpu"):
    generator = torch.Generator().manual_seed(rows)
    x_RD, residual_RD = (torch.randn(rows, 16, generator=generator).bfloat16() for _ in range(2))
    x_bias_D, weight_D, bias_D = (torch.randn(16, generator=generator) for _ in range(3))
    mask_RD = torch.rand(rows, 16, generator=generator) > 0.3
    *tensors, weight_D, bias_D = (x.to(device) for x in (x_RD, residual_RD, x_bias_D, mask_RD, weight_D, bias_D))
    return *tensors, 0.3, weight_D, bias_D, 1e-5, torch.float32


def check(device):
    """With and without a graph, as in the two passes of the gradient cache: both are those of the plain function."""
    for rows in SIZES:
        x_RD, *others = arguments(rows, device)
        expected = layers._add_norm.__wrapped__(x_RD, *others)
        with torch.no_grad():
            torch.testing.assert_close(layers._add_norm(x_RD, *others), expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(
            layers._add_norm(x_RD.requires_grad_(), *others).detach(), expected, rtol=1e-3, atol=1e-3
        )


@pytest.mark.slow
def test_one_compilation_serves_all_sizes(compiled_on_cpu):
    check("cpu")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # with and without gradients


@pytest.mark.gpu
def test_a_compiled_function_is_the_plain_one_on_a_gpu():
    assert fused.has_compiler()
    check("cuda")


def test_no_compiled_function_draws_random_numbers():
    """Inductor draws other numbers for the same seed in a kernel that is fused in another way."""
    names = {**vars(layers), **vars(cross_entropy)}  # torch adds compiled functions to them, with two underscores
    functions = [x for name, x in names.items() if inspect.isfunction(x) and not name.startswith("__")]
    sources = [
        inspect.getsource(x.__wrapped__) for x in functions if inspect.isfunction(getattr(x, "__wrapped__", None))
    ]
    assert len(sources) == 9
    for source in sources:
        assert not re.search(r"dropout|rand|bernoulli", source)


def test_a_cpu_compiles_nothing(monkeypatch):
    monkeypatch.setattr(fused, "compiled", None)
    layers._add_norm(*arguments(5))


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
