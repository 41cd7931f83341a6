"""int8 maps with outlier columns, and the figures by which a way of encoding is judged."""

import numpy as np
import pytest
import torch
from ready import POOLING, sentence
from torch import nn

from benchmarks.int8 import __main__ as int8
from benchmarks.int8.outliers import MAPS, Int8, largest_columns, quantise
from benchmarks.int8.ways import FLOAT32, WAYS, in_batches
from benchmarks.openvino_bf16 import cosines
from pipeline.modeling.biencoder import Encoder, encode_rows, load_encoders

NONE = torch.zeros(0, dtype=torch.int64)


@pytest.fixture
def encoder(tmp_path) -> Encoder:
    return load_encoders(sentence(tmp_path / "model", ("Transformer", "Pooling", "Normalize"), pooling=POOLING))[1]


def random_rows(encoder: Encoder, number: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, encoder.model.config.vocab_size, length) for length in rng.integers(3, 30, number)]


def maps_and_input() -> tuple[list[nn.Linear], torch.Tensor, int]:
    """Two maps, rows whose column 5 has far larger values than the others, and that column."""
    torch.manual_seed(0)
    x_RK = torch.randn(40, 64)
    x_RK[:, 5] *= 100
    return [nn.Linear(64, 32), nn.Linear(64, 16)], x_RK, 5


@torch.no_grad()
def error(maps: list[nn.Linear], x_RK: torch.Tensor, columns: torch.Tensor, fine: bool = False) -> float:
    expected_RE = torch.cat([one(x_RK) for one in maps], 1)
    return float((Int8(maps, columns, fine)(x_RK) - expected_RE).norm() / expected_RE.norm())


def test_joined_int8_maps_are_near_those_of_float32():
    maps, x_RK, large = maps_and_input()
    x_RK[:, large] /= 100
    assert 0 < error(maps, x_RK, NONE) < 0.015


def test_an_outlier_column_in_float32_costs_other_columns_no_precision():
    maps, x_RK, large = maps_and_input()
    x_RK[:, large] = 100  # the same in all rows: subtracted, only the other columns' products are compared
    others = [nn.Linear(64, one.out_features) for one in maps]
    for one, other in zip(maps, others, strict=True):
        with torch.no_grad():
            other.weight.copy_(one.weight)
            other.bias.copy_(-100 * one.weight[:, large])
    assert error(others, x_RK, torch.tensor([large])) < 0.015
    assert error(others, x_RK, NONE) > 0.1


def test_fine_weights_leave_only_the_error_of_the_inputs():
    maps, _, _ = maps_and_input()
    exact_RK = torch.randint(-127, 128, (40, 64)).float()
    exact_RK[:, 0] = 127  # so a scale is 1, and rounding changes no number
    coarse, fine = (error(maps, exact_RK, NONE, fine) for fine in (False, True))
    assert coarse > 100 * fine


def test_a_row_has_the_same_bytes_alone_and_with_others():
    maps, x_RK, large = maps_and_input()
    with torch.no_grad():
        quantised = Int8(maps, torch.tensor([large]))
        assert torch.equal(quantised(x_RK[:20]), quantised(x_RK)[:20])


def test_the_columns_with_the_largest_values_are_found(encoder):
    layer = encoder.model.encoder.layer[-1]
    with torch.no_grad():
        layer.attention.output.LayerNorm.weight[3] = 50
    (*_, found) = largest_columns(encoder, 2)
    assert set(found) == set(MAPS)
    assert found["inner"][0] == 3


def test_a_quantised_encoder_has_nearly_the_same_vectors(encoder):
    rows = random_rows(encoder, 40)
    expected_NE = encode_rows(encoder, rows, 200)
    quantise(encoder, outliers=2)
    vector_NE = encode_rows(encoder, rows, 200)
    assert not np.array_equal(vector_NE, expected_NE)
    assert cosines(vector_NE, expected_NE).min() > 0.999


def test_padded_batches_give_vectors_in_the_order_of_rows():
    rows = [np.arange(1, length) for length in np.random.default_rng(0).integers(2, 50, 70)]
    encode = in_batches(lambda inputs: inputs["input_ids"].sum(1, keepdims=True).astype(np.float32))
    np.testing.assert_array_equal(encode(rows)[:, 0], [row.sum() for row in rows])


@pytest.mark.parametrize(("way", "packages"), [
    ("torch", []), ("torchao", ["torchao"]), ("bitsandbytes", ["bitsandbytes"]),
    ("onnxruntime-float32", ["onnxruntime"]), ("onnxruntime", ["onnxruntime"]), ("onnxruntime-blocks", ["onnxruntime"]),
    ("openvino-groups", ["openvino", "nncf"]),
])  # fmt: skip
def test_a_library_has_nearly_the_same_vectors(monkeypatch, tmp_path, way, packages):
    monkeypatch.setenv("CI", "true")  # the way of OpenVINO sets it
    for package in packages:
        pytest.importorskip(package, reason="an extra")
    folder = sentence(tmp_path / "model", ("Transformer", "Pooling", "Normalize"), pooling=POOLING)
    rows = random_rows(load_encoders(folder)[1], 40)
    with torch.inference_mode():
        assert cosines(WAYS[way](folder)(rows), WAYS[FLOAT32](folder)(rows)).min() > 0.99


def test_ndcg_is_that_of_the_definition():
    collection = int8.Collection(["a", "b"], [], ["q", "r"], [], {"q": {"b": 1}, "r": {"b": 1}})
    vectors = np.eye(2, dtype=np.float32)
    # q finds its passage at rank 2, r at rank 1
    assert int8.ndcg(collection, vectors, vectors) == pytest.approx((1 / np.log2(3) + 1) / 2)


GOOD = {"lowest": 0.9995, "ratio": 1.5, "c lowest, passages": 0.9993, "c float32": 0.64, "c int8": 0.641}


@pytest.mark.parametrize(("change", "offered"), [
    ({}, True), ({"ratio": 1.2}, False), ({"lowest": 0.998}, False), ({"c lowest, passages": 0.998}, False),
    ({"c int8": 0.637}, False), ({"c int8": 0.643}, False),
])  # fmt: skip
def test_a_way_is_offered_only_if_all_figures_are_good(change, offered):
    assert int8.is_offered({**GOOD, **change}, ["c"]) == offered


def test_a_way_without_ndcg_is_not_offered():
    assert not int8.is_offered({"lowest": 0.98, "ratio": 2}, ["c"])
