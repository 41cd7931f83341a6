"""What the step functions, encoding, scoring, search, attention analysis and the loop do on a GPU, without one.

All cases run once, in a process with a fake CUDA device (tests/support/fake_cuda). They show where the host waits,
which tensors are on which device, how many kernels run and how much memory is in use; they compute no numbers.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_cuda.cases import BUDGET, CASES, UPDATES
from fake_cuda.device import missing
from fake_cuda.mps_cases import MPS_CASES
from transformers import BertConfig

from pipeline.training.memory import graphs_bytes, kept_bytes

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no fake CUDA device: {missing()}")

ROOT = Path(__file__).parents[2]

ALLOWED = {
    "loop": {("pipeline/training/loop.py", "train")},
    "loop of two ranks": {("pipeline/training/loop.py", "train")},
    "loop resumed": {
        ("pipeline/training/loop.py", "train"),
        ("pipeline/runtime/checkpoints.py", "save_state"),
        ("pipeline/runtime/checkpoints.py", "restore"),
    },
}
"""Case -> (file, function) in which the host may wait: where it reads figures, or reads and writes checkpoints."""

KERNELS = {
    "pretraining condenser": 633,
    "pretraining mlm": 506,
    "pretraining retromae": 740,
    "pretraining cocondenser graphs": 604,
    "pretraining cocondenser cache": 729,
    "finetuning contrastive": 474,
    "finetuning cache": 564,
    "cross-encoder listwise": 482,
    "encoding cls": 139,
}
"""First words of a case -> kernels of a chunk. In an update: forward, backward and the loss."""
UPLOADS = {"pretraining condenser bert": 19, "finetuning contrastive bert": 14, "encoding cls bert": 10}
"""Case -> copies from the host to the device: those of two chunks, and those of the update."""
KEPT = {"graph of pretraining bert": 300_400, "graph of finetuning bert": 296_700}
"""Case -> bytes of a kept graph per token."""
MARGIN = 1.03
"""How far the two may rise. They are the values of torch 2.13: lower them when the code needs less."""


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """Returns what each case recorded."""
    paths = [str(ROOT / "tests" / "support"), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "fake_cuda"]
    done = subprocess.run(program, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["case"]: line for line in lines}


def recorded(results: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    result = results[name]
    assert "error" not in result, result["error"]
    return result


def waits(result: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Returns the number of waits by (file, function)."""
    counts: dict[tuple[str, str], int] = {}
    for _, file, function, _, count in result["waits"]:
        counts[file, function] = counts.get((file, function), 0) + count
    return counts


@pytest.mark.parametrize("name", [name for name in CASES if name != "faults"])
def test_the_host_waits_only_for_results_and_no_operation_mixes_devices(results, name):
    result = recorded(results, name)
    assert result["kernels"] > 0
    allowed = ALLOWED.get(name, set())
    assert [place for place in result["waits"] if tuple(place[1:3]) not in allowed] == []
    assert result["mixes"] == []


def test_waits_and_mixed_devices_are_seen(results):
    result = recorded(results, "faults")
    assert [(what, count) for what, _, _, _, count in result["waits"]] == [
        ("copies cpu to cuda", 2),
        ("copies cuda to cpu", 1),
        ("reads a value", 2),
    ]
    assert [what for what, *_ in result["mixes"]] == ["index"]


@pytest.mark.parametrize("name", KERNELS)
def test_a_chunk_needs_few_kernels(results, name):
    result = recorded(results, f"{name} bert")
    chunks = math.ceil(result["tokens"] / BUDGET)
    assert result["kernels"] / chunks < MARGIN * KERNELS[name]


@pytest.mark.parametrize("name", UPLOADS)
def test_a_chunk_uploads_only_what_the_device_reads(results, name):
    """Indices by length groups belong to the CPU's attention."""
    assert recorded(results, name)["copies"]["cpu to cuda"] <= UPLOADS[name]


def test_a_gpu_without_the_kernel_gets_the_indices_of_length_groups(results):
    """Those of the masked tokens' padded rows, and of the rows among them."""
    result = recorded(results, "pretraining mlm before Ampere bert")
    assert result["padding"] > 0
    assert result["copies"]["cpu to cuda"] == 9 + 2


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_graph_needs_few_bytes(results, name):
    assert recorded(results, name)["bytes_per_token"] < MARGIN * KEPT[name]


@pytest.mark.parametrize("name", KEPT)
def test_the_estimate_of_a_kept_graph_is_right(results, name):
    assert kept_bytes(BertConfig(), dropout=True) == pytest.approx(recorded(results, name)["bytes_per_token"], rel=0.15)


@pytest.mark.parametrize(("name", "graphs"), [("condenser", 1), ("cocondenser graphs", 2)])
def test_the_estimate_of_an_updates_peak_is_right(results, name, graphs):
    """`graphs`: how many of the two chunks have a graph at once."""
    result = recorded(results, f"pretraining {name} bert")
    chunk = result["tokens"] // 2
    estimate = graphs_bytes(BertConfig(), graphs * chunk, chunk, dropout=True)
    assert estimate == pytest.approx(result["peak"] - result["held"], rel=0.15)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("cross-encoder", "scoring"))])
def test_logits_of_cross_encoders_are_float32(results, name):
    """bfloat16 has 8 bits: a quarter of the lists had ties among the first ten passages."""
    assert recorded(results, name)["products"] == {"pooler": ["float32"], "classifier": ["float32"]}


@pytest.mark.parametrize("name", [name for name in CASES if "projection" in name])
def test_projected_vectors_are_float32(results, name):
    assert recorded(results, name)["products"] == {"projection": ["float32"]}


@pytest.mark.parametrize("name", MPS_CASES)
def test_a_macs_gpu_computes_float32_and_mixes_no_devices(results, name):
    """MPS has no float64; its bfloat16 is not used."""
    result = recorded(results, name)
    assert result["kernels"] > 0
    assert result["mixes"] == []
    assert {*result["types"]} <= {"float32", "int64", "int32", "bool"}
    assert not {kernel for kernel in result["names"] if "fused" in kernel} - {"_fused_adamw_"}
    assert (result["seeded"] > 0) == ("encoding" not in name)


def test_the_loop_reads_its_figures_every_20_updates(results):
    """Also after an update with an infinite loss: the device decides whether it is skipped."""
    result = recorded(results, "loop")
    assert (result["updates"], waits(result)["pipeline/training/loop.py", "train"]) == (UPDATES, 2)


def test_a_training_resumes_from_a_checkpoint(results):
    result = recorded(results, "loop resumed")
    assert (result["updates"], result["resumed_updates"]) == (3, 5)
    assert result["saved"] == ["step-1", "step-2"]
    # Each of three updates ends with a checkpoint or the training; then three updates have one read.
    assert waits(result)["pipeline/training/loop.py", "train"] == 4


def test_gradients_are_summed_during_the_last_backward_pass(results):
    """In nine buckets, then the figures, without a wait of the host. One sum more: whether a rank is float16."""
    result = recorded(results, "loop of two ranks")
    assert (result["updates"], result["early"], result["sums"]) == (3, [9, 9, 9], 1 + 3 * 10)
    assert waits(result)["pipeline/training/loop.py", "train"] == 1


@pytest.mark.parametrize("name", ["encoding cls bert", "scoring bert"])
def test_results_are_copied_while_the_next_chunk_is_computed(results, name):
    """The host waits for an event of the chunk before, not for the device."""
    result = recorded(results, name)
    assert result["copies"]["cuda to cpu"] == -(-result["tokens"] // BUDGET) == 2
