"""Ways of encoding in int8, each by a library or by this project's composition (outliers.py).

A way is a function of a model folder that returns an encoder of rows of token ids. ONNX Runtime and OpenVINO read
padded batches, as benchmarks/openvino_bf16.py.

Shapes: N rows, E dimensions of a vector.
"""

import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.int8.outliers import MAPS, quantise
from benchmarks.openvino_bf16 import BATCH, converted, padded
from benchmarks.steps import BUDGET
from pipeline.export.graph import quiet, write_graph
from pipeline.modeling.biencoder import Encoder, encode_rows, load_encoders
from pipeline.modeling.inputs import Ids

EncodeRows = Callable[[Ids], np.ndarray]
"""encode(rows) returns their vectors in the same order, float32 [N, E]."""
ORDER = ("query", "key", "value", "attention", "inner", "outer")
"""Maps of a layer in the order of its ONNX graph."""


def of_program(change: Callable[[Encoder], None]) -> Callable[[Path], EncodeRows]:
    """Returns the way that encodes by this program after `change`."""

    def load(folder: Path) -> EncodeRows:
        encoder = load_encoders(folder)[1]
        change(encoder)
        return lambda rows: encode_rows(encoder, rows, BUDGET)

    return load


def torch_dynamic(encoder: Encoder) -> None:
    """One scale for all activations of a map, one for its weights."""
    with quiet():
        torch.ao.quantization.quantize_dynamic(encoder.model, {nn.Linear}, inplace=True)


def torchao(weights_only: bool = False, asymmetric: bool = False, parts: Iterable[str] = ("",)) -> Any:
    """Changes the maps whose module names contain one of `parts`: a scale for each row and each output."""

    def change(encoder: Encoder) -> None:
        with quiet():
            from torchao import quantization
            from torchao.quantization.quant_primitives import MappingType

        mapping = MappingType.ASYMMETRIC if asymmetric else MappingType.SYMMETRIC
        config = (
            quantization.Int8WeightOnlyConfig(set_inductor_config=False)
            if weights_only
            else quantization.Int8DynamicActivationInt8WeightConfig(set_inductor_config=False, act_mapping_type=mapping)
        )

        def is_chosen(module: nn.Module, name: str) -> bool:
            return isinstance(module, nn.Linear) and any(part in name for part in parts)

        quantization.quantize_(encoder.model, config, filter_fn=is_chosen)

    return change


def bitsandbytes(encoder: Encoder) -> None:
    """As `torchao`, and columns with a value of at least 6 stay float32 (LLM.int8: Dettmers et al., 2022)."""
    from bitsandbytes import nn as low

    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns in each layer that it casts to float16
    for module in list(encoder.model.modules()):
        for name, linear in module.named_children():
            if isinstance(linear, nn.Linear):
                sizes = linear.in_features, linear.out_features
                replaced = low.Linear8bitLt(*sizes, has_fp16_weights=False, threshold=6.0)
                replaced.weight = low.Int8Params(linear.weight.data, requires_grad=False, has_fp16_weights=False)
                replaced.bias = linear.bias
                setattr(module, name, replaced.to("cpu"))


def onnx_runtime(change: Callable[[Any], Any]) -> Callable[[Path], EncodeRows]:
    """Returns the way that encodes by ONNX Runtime after `change`: of a graph's path, in place."""

    def load(folder: Path) -> EncodeRows:
        import onnxruntime

        with tempfile.TemporaryDirectory() as place, quiet():
            path = Path(place, "model.onnx")
            write_graph(load_encoders(folder)[1], path)
            change(path)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return in_batches(lambda inputs: session.run(None, inputs)[0])

    return load


def onnx_dynamic(but: Callable[[int, str], bool] = lambda _, name: False) -> Callable[[Path], None]:
    """One scale for all activations of a map, one for each output; not for maps of which but(layer, name) is true."""

    def change(path: Path) -> None:
        import onnx
        from onnxruntime.quantization import quantize_dynamic

        graph = onnx.load(path).graph
        weights = {x.name for x in graph.initializer}
        maps = [x.name for x in graph.node if x.op_type in ("MatMul", "Gemm") and weights & set(x.input)]
        kept = [name for i, name in enumerate(maps) if but(i // len(ORDER), ORDER[i % len(ORDER)])]
        quantize_dynamic(path, path, ["MatMul", "Gemm"], per_channel=True, reduce_range=False, nodes_to_exclude=kept)

    return change


def onnx_blocks(size: int) -> Callable[[Path], None]:
    """A scale for each block of `size` columns, of each row and of each output (MatMulNBits, int8 products)."""

    def change(path: Path) -> None:
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(onnx.load(path), bits=8, block_size=size, is_symmetric=True, accuracy_level=4)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))

    return change


def openvino(group: int) -> Callable[[Path], EncodeRows]:
    """Weights with a scale for each output; rows with one for each `group` columns (0: activations stay float32)."""

    def load(folder: Path) -> EncodeRows:
        os.environ["CI"] = "true"  # else both packages send statistics of their use
        with quiet():
            import nncf
            import openvino

            model = nncf.compress_weights(converted(folder), mode=nncf.CompressWeightsMode.INT8_SYM)
        settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(model, "CPU", {**settings, "DYNAMIC_QUANTIZATION_GROUP_SIZE": group})
        return in_batches(lambda inputs: compiled(inputs)[0])

    return load


def in_batches(encode: Callable[[dict[str, np.ndarray]], np.ndarray]) -> EncodeRows:
    """Returns the encoder that sorts rows by length and pads each batch to its longest."""

    def encode_sorted(rows: Ids) -> np.ndarray:
        order_N = np.argsort([len(row) for row in rows], kind="stable")
        pieces = [order_N[first : first + BATCH] for first in range(0, len(rows), BATCH)]
        sorted_NE = np.concatenate([encode(padded([rows[row].tolist() for row in piece], 0)) for piece in pieces])
        vector_NE = np.empty_like(sorted_NE)
        vector_NE[order_N] = sorted_NE
        return vector_NE

    return encode_sorted


FLOAT32 = "float32"
WAYS: dict[str, Callable[[Path], EncodeRows]] = {
    FLOAT32: of_program(lambda encoder: None),
    "torch": of_program(torch_dynamic),
    "torchao": of_program(torchao()),
    "torchao-asymmetric": of_program(torchao(asymmetric=True)),
    "torchao-inner": of_program(torchao(parts=("attention.self", "intermediate"))),
    "torchao-weights": of_program(torchao(weights_only=True)),
    "bitsandbytes": of_program(bitsandbytes),
    "outliers": of_program(quantise),
    "outliers-inner": of_program(lambda encoder: quantise(encoder, MAPS[:-1])),
    "outliers-fine": of_program(lambda encoder: quantise(encoder, fine=("outer",))),
    "onnxruntime-float32": onnx_runtime(lambda path: None),
    "onnxruntime": onnx_runtime(onnx_dynamic()),
    "onnxruntime-middle": onnx_runtime(onnx_dynamic(lambda layer, name: layer in (0, 5) or name == "outer")),
    "onnxruntime-blocks": onnx_runtime(onnx_blocks(32)),
    "openvino-weights": openvino(0),
    "openvino-groups": openvino(32),
}
