"""Low precision: products of cast weights, float32 sums and gradients. bfloat16 on the CPU represents a GPU's."""

import gc
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import updates
from machines import make_machine
from torch import nn
from torch.nn import functional as F

from pipeline.modeling import cast_weights, layers
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.biencoder import encode_rows
from pipeline.modeling.cast_weights import cast
from pipeline.modeling.cross_entropy import ROWS, cross_entropy, in_blocks, in_one_product
from pipeline.runtime import precision

SHAPE = {**updates.SMALL, "vocab_size": 500}
LOW = torch.bfloat16


@pytest.fixture
def own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_precision", None)


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes compute in bfloat16."""
    monkeypatch.setattr(precision, "low_precision", lambda device: LOW)


def update(architecture: str, name: str, head_layers: int, dropout: float, graphs: str) -> tuple[Any, nn.ModuleDict]:
    torch.manual_seed(0)
    module = updates.language_model(architecture, SHAPE, dropout, head_layers)
    updates.with_gradients(module)
    machine = make_machine(token_budget=300, gradient_cache=graphs)
    return updates.pretraining_update(module, name, machine, "cpu", 32, skip_from=1), module


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
@pytest.mark.parametrize(("name", "head_layers"), [("cocondenser", 2), ("retromae", 1)])
def test_an_update_is_that_of_float32_but_for_rounding(monkeypatch, architecture, name, head_layers):
    expected, plain = update(architecture, name, head_layers, 0.0, "never")
    monkeypatch.setattr(precision, "low_precision", lambda device: LOW)
    actual, rounded = update(architecture, name, head_layers, 0.0, "never")
    for loss in {*expected} - {"tokens", "padding", "operations"}:
        assert float(actual[loss]) == pytest.approx(float(expected[loss]), rel=1e-3)
    largest = max(float(one.grad.norm()) for one in plain.parameters())
    for (parameter, one), other in zip(plain.named_parameters(), rounded.parameters(), strict=True):
        assert other.grad.dtype == torch.float32
        assert (one.grad - other.grad).norm() < 0.02 * largest, parameter
        if one.grad.norm() > 0.01 * largest:  # those of queries and keys of random weights are rounding errors
            assert F.cosine_similarity(one.grad.flatten(), other.grad.flatten(), 0) > 0.99, parameter
            assert other.grad.norm() == pytest.approx(one.grad.norm(), rel=0.03), parameter


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_those_of_float32_but_for_rounding(own_precision, pooling):
    """On a CPU, as `machine.precision: bfloat16` computes them."""
    one = replace(updates.encoder("bert", SHAPE, 0.0), pooling=pooling)
    ids = [np.r_[2, np.arange(5, 5 + n), 3] for n in (3, 30, 11)]
    expected_NE = encode_rows(one, ids, 30)
    precision.use_precision("bfloat16")
    vector_NE = encode_rows(one, ids, 30)
    assert vector_NE.dtype == np.float32
    assert not np.array_equal(vector_NE, expected_NE)
    lengths_N = np.linalg.norm(vector_NE, axis=1) * np.linalg.norm(expected_NE, axis=1)
    assert ((vector_NE * expected_NE).sum(1) / lengths_N).min() > 0.9995


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_kept_graphs_and_the_gradient_cache_give_the_same_bits(low, dropout):
    kept, cached = (update("bert", "cocondenser", 2, dropout, graphs) for graphs in ("never", "always"))
    assert {**kept[0]} == {**cached[0]}
    for one, other in zip(kept[1].parameters(), cached[1].parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("onednn", [True, False])
def test_a_map_with_its_bias_is_that_of_float32_rounded_once(monkeypatch, rows, onednn):
    """With oneDNN only where it multiplies bfloat16; elsewhere both are `addmm`."""
    if not onednn:
        monkeypatch.setattr(layers, "_has_onednn", lambda: False)
    torch.manual_seed(0)
    x_RD, weight_ED, bias_E = (torch.randn(*shape).to(LOW) for shape in ((rows, 64), (33, 64), (33,)))
    actual_RE = layers.affine(x_RD, weight_ED, bias_E)
    assert actual_RE.dtype == LOW
    expected_RE = F.linear(x_RD.float(), weight_ED.float(), bias_E.float())
    torch.testing.assert_close(actual_RE.float(), expected_RE, rtol=2**-8, atol=1e-4)


def test_a_last_layer_is_not_rounded():
    one = updates.encoder("bert", SHAPE, 0.0)
    rows_RD = torch.randn(5, SHAPE["hidden_size"])
    with torch.autocast("cpu", LOW):
        attended = architecture(one.model).layer(one.model.encoder.layer[0]).attended
        output = partial(layers.linear_and_norm, attended, rows_RD.to(LOW))
        rounded, exact = output(rows_RD), output(rows_RD, float32=True)
    assert (rounded.dtype, exact.dtype) == (LOW, torch.float32)
    assert torch.equal(exact.to(LOW), rounded)
    assert not torch.equal(exact, rounded.float())


@pytest.mark.parametrize("both", [True, False])
def test_several_maps_are_one_product_whose_input_sums_all_gradients(both):
    first, second = nn.Linear(16, 8), nn.Linear(16, 4)
    x_RD = torch.randn(6, 16, requires_grad=True)

    def gradients() -> torch.Tensor:
        again_RD, *maps = layers.linears((first, second), x_RD)
        losses = [one.float().square().sum() for one in (again_RD, *maps)]
        total = losses[0] + losses[1] + (losses[2] if both else 0.0)
        used = [*first.parameters(), *(second.parameters() if both else ())]
        return torch.cat([x.flatten() for x in torch.autograd.grad(total, [x_RD, *used])])

    expected = gradients()
    with torch.autocast("cpu", LOW):
        actual = gradients()
    torch.testing.assert_close(actual, expected, rtol=0.05, atol=0.1)


def test_gelu_of_many_rows_is_that_of_few_but_for_rounding(monkeypatch):
    """A GPU computes many rows by a compiled function; here it runs uncompiled."""
    module = updates.encoder("bert", SHAPE, 0.0).model.encoder.layer[0].intermediate.dense
    x_RD = torch.randn(50, SHAPE["hidden_size"]).to(LOW).requires_grad_()

    def computed() -> list[torch.Tensor]:
        again_RD, inner_RI = layers.linear_and_activation(module, F.gelu, x_RD)
        loss = inner_RI.float().square().sum() + again_RD.float().square().sum()
        return [inner_RI, *torch.autograd.grad(loss, [x_RD, *module.parameters()])]

    with torch.autocast("cpu", LOW):
        expected = computed()
        monkeypatch.setattr(layers, "MANY_ROWS", 50)
        monkeypatch.setattr(layers, "is_compiled", lambda x: len(x) == 50 and x.dtype == LOW)
        monkeypatch.setattr(layers, "_gelu", gelu := Mock(wraps=layers._gelu.__wrapped__))
        actual = computed()
    assert gelu.call_count == 1
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert (one - other).float().norm() < 0.01 * other.float().norm()


@pytest.mark.parametrize("number", [7, ROWS + 3])
@pytest.mark.parametrize("way", [in_one_product, in_blocks, cross_entropy])
def test_the_low_precision_cross_entropy_is_that_of_float32_but_for_rounding(monkeypatch, way, number):
    """`in_one_product` is a GPU's way."""
    monkeypatch.setattr("pipeline.modeling.cross_entropy.BLOCK", 32)
    torch.manual_seed(0)
    weight_VD, bias_V = (nn.Parameter(torch.randn(*shape)) for shape in ((70, 16), (70,)))
    states_ND, label_N = torch.randn(number, 16, requires_grad=True), torch.randint(70, (number,))
    weights_N = torch.rand(number)

    def computed(loss: Any) -> list[torch.Tensor]:
        loss_N = loss()
        return [loss_N, *torch.autograd.grad((loss_N * weights_N).sum(), [states_ND, weight_VD, bias_V])]

    expected = computed(lambda: F.cross_entropy(F.linear(states_ND, weight_VD, bias_V), label_N, reduction="none"))
    with torch.autocast("cpu", LOW):
        dtype = () if way is cross_entropy else (LOW,)
        actual = computed(lambda: way(states_ND, weight_VD, bias_V, label_N, *dtype))
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.01 * other.norm()


def test_copies_follow_the_weights_and_are_written_together(monkeypatch):
    weights, bias = [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(1, 2))], nn.Parameter(torch.randn(2))
    with torch.inference_mode():  # as in an evaluation between two updates
        joined, padded = cast(weights, LOW), cast((bias,), LOW, rows=4, fill=-torch.inf)
    assert not joined.is_inference()
    assert torch.equal(joined, torch.cat(weights).to(LOW))
    assert torch.equal(padded, torch.cat([bias.to(LOW), torch.full((2,), -torch.inf, dtype=LOW)]))
    written: list[int] = []
    write = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, source: written.append(len(to)) or write(to, source))
    with torch.no_grad():
        for parameter in (*weights, bias):
            parameter.add_(1.0)
    assert cast(weights, LOW) is joined
    assert torch.equal(joined, torch.cat(weights).to(LOW))
    assert torch.equal(cast((bias,), LOW, rows=4, fill=-torch.inf)[:2], bias.to(LOW))
    assert written == [3]


def test_copies_of_weights_that_are_gone_are_forgotten():
    gone = nn.Parameter(torch.randn(2, 2))
    cast((gone,), LOW)
    del gone
    gc.collect()
    kept = nn.Parameter(torch.randn(2, 2))
    cast((kept,), LOW)
    for copy in cast_weights._copies.values():
        assert all(source() is not None for source in copy.sources)
