"""Simulates an H100 without a GPU: the real step functions on a fake CUDA device, their kernels timed by a roofline.

The fake device (tests/support/fake_cuda) must be loaded before torch, so torch is imported inside the functions.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SUPPORT = Path(__file__).parents[2] / "tests" / "support"
ENCODED = 2000
"""Passages of the simulated encoding; chunk follows chunk, so more of them change no rate."""

Simulated = dict[str, Any]


def simulate(shape: str, out: Path, only: Sequence[str] = ()) -> None:
    """Writes `out` after each part; prints the table of the targets.

    SystemExit if there can be no fake device, or if a part failed.
    """
    sys.path.insert(0, str(SUPPORT))
    from fake_cuda import device

    if reason := device.missing():
        sys.exit(f"no fake CUDA device: {reason}")
    device.load()
    from fake_cuda.recorder import fake_device
    from torch._subclasses.fake_tensor import FakeTensorMode

    from benchmarks.gpu import targets
    from benchmarks.gpu.compare import one_line
    from benchmarks.gpu.inputs import SIZES
    from benchmarks.gpu.roofline import ASSUMPTIONS, PEAK
    from benchmarks.gpu.run import check_names, end_if_failed, machine, short, write

    results: Simulated = {
        "simulated": True,
        **machine("cpu"),
        "device": "simulated H100 SXM",
        "peak_operations_per_second": PEAK,
        "shape": shape,
        "assumptions": ASSUMPTIONS,
        "parts": {},
    }
    all_parts = parts(SIZES[shape])
    check_names(only, all_parts)
    out.parent.mkdir(parents=True, exist_ok=True)
    for name, part in all_parts.items():
        if only and name not in only:
            continue
        started = time.monotonic()
        try:
            with fake_device(FakeTensorMode(allow_non_fake_inputs=True)):
                figures = {"status": "done", **part()}
        except Exception as error:  # one part must not end the others
            figures = {"status": "failed", "error": one_line(error)}
        results["parts"][name] = figures
        if "kernels_per_chunk" in figures.get("ours", {}) and name == "cocondenser_graphs":
            results["parts"]["kernels"] = {"kernels_per_chunk": figures["ours"]["kernels_per_chunk"]}
        results["targets"] = targets.judge(results["parts"])
        write(results, out)
        print(f"{time.monotonic() - started:5.0f} s  {name}: {short(figures)}", file=sys.stderr, flush=True)
    print(targets.table(results["targets"], "simulated, H100, BERT base"))
    print(f"\n{targets.overview(results['parts'])}")
    end_if_failed(results["parts"])


def parts(size: Any) -> Mapping[str, Callable[[], Simulated]]:
    """Returns the parts by name."""
    from benchmarks.gpu import finetuning, pretraining

    found: dict[str, Callable[[], Simulated]] = {}
    for name, pre in pretraining.tasks(size).items():
        found[name] = partial(pretraining_part, pre, size)
    for name, fine in finetuning.tasks(size).items():
        found[name] = partial(finetuning_part, fine, size)
    found["cross_encoder"] = partial(cross_encoder_part, size)
    found["encoding"] = partial(encoding_part, size)
    found["search"] = partial(search_part, size)
    return found


def pretraining_part(task: Any, size: Any) -> Simulated:
    from benchmarks.gpu import inputs, pretraining

    module = inputs.language_model(size, task.head_layers, "cuda")
    step = pretraining.our_step(task, size, module, "cuda")
    batch = pretraining.Batches(task, size)(1, inputs.machine("cpu", token_budget=10**9), "cpu")
    every = batch.chunks[0].every
    budget = pretraining.budget(module, "cuda")
    return {"ours": update(module, step, every.scores / every.size, -(-batch.tokens // budget))}


def finetuning_part(task: Any, size: Any) -> Simulated:
    from benchmarks.gpu import finetuning

    model = finetuning.towers(task, size, "cuda")
    step = finetuning.our_step(task, size, model, "cuda")
    return {"ours": update(model.trained.train(), step, mean_length(finetuning.rows(task, size, 1)))}


def cross_encoder_part(size: Any) -> Simulated:
    from benchmarks.gpu import finetuning, inputs

    task, model = finetuning.cross_task(size), inputs.classifier(size, "cuda")
    step = finetuning.our_cross_step(task, size, model, "cuda")
    return {"ours": update(model, step, mean_length(finetuning.pairs(task, size, 1).ids))}


def mean_length(ids: Any) -> float:
    """Returns the tokens that a token's sequence has, on average over the tokens."""
    lengths = [len(row) for row in ids]
    return sum(n * n for n in lengths) / sum(lengths)


def update(module: Any, step: Any, keys: float, chunks: int | None = None) -> Simulated:
    """Simulates the second update of the training loop (the first one allocates AdamW's moments)."""
    from benchmarks.gpu.clock import OPTIMISER, WORK
    from benchmarks.gpu.roofline import Roofline
    from pipeline.runtime.work import silent
    from pipeline.training import loop

    roofline = Roofline(keys)
    roofline.hold(module)
    work: dict[str, float] = {}
    inside: list[int] = []

    def before(i: int) -> None:
        if i == 1:
            roofline.clear()

    def counted(i: int, batch: Any) -> Any:
        launched = roofline.kernels.total()
        parts = step.step(i, batch)
        inside.append(roofline.kernels.total() - launched)
        work.update({name: float(parts[name]) for name in WORK})
        return parts

    with TemporaryDirectory() as folder, roofline:
        loop.train(
            module, counted, 2, OPTIMISER, 1, Path(folder), 60, silent, "cuda", before=before, prepare=step.prepare
        )
    figures = simulated(roofline, work)
    return figures | ({"chunks": chunks, "kernels_per_chunk": inside[-1] / chunks} if chunks else {})


def simulated(roofline: Any, work: Mapping[str, float]) -> Simulated:
    """Returns the figures of what ran within the mode. The host or the device limits the time."""
    from benchmarks.gpu.roofline import HOST, HOST_COMPILED, PEAK

    device, kernels = sum(roofline.seconds.values()), roofline.kernels.total()
    host = HOST * kernels + (HOST_COMPILED - HOST) * roofline.kernels["fused"]
    longest = sorted(roofline.seconds.items(), key=lambda item: -item[1])
    seconds = max(device, host)
    return {
        "ms": 1000 * seconds,
        "device_ms": 1000 * device,
        "host_ms": 1000 * host,
        "kernels": kernels,
        "peak_GiB": roofline.peak / 2**30,
        **work,
        "tokens_per_second": work["tokens"] / seconds,
        "mfu": work["operations"] / seconds / PEAK,
        "device_shares": {name: x / device for name, x in longest[:12]},
    }


def encoding_part(size: Any) -> Simulated:
    from benchmarks.gpu import encoding, inputs
    from benchmarks.gpu.roofline import Roofline
    from pipeline.modeling.biencoder import encode_rows
    from pipeline.training.memory import encoding_budget

    one = encoding.encoder(size, "cuda")
    ids = inputs.rows(min(ENCODED, size.encoded), inputs.PASSAGE, size, 0)
    budget = encoding_budget("auto", "cuda", one.model.config)
    roofline = Roofline(mean_length(ids))
    roofline.hold(one.model)
    with roofline:
        encode_rows(one, ids, budget)
    figures = simulated(roofline, encoding.work(one.model.config, ids))
    # The time between two chunks, when the host packs rows and the device waits, is left out.
    return {"ours": figures | {"passages_per_second": 1000 * len(ids) / figures["ms"]}}


def search_part(size: Any) -> Simulated:
    """Simulates the candidates of a search in vectors on the device; rescoring, about 1 % of it, is left out."""
    import numpy as np
    import torch

    from benchmarks.gpu.roofline import Roofline
    from benchmarks.gpu.searching import LISTS, marco_seconds
    from pipeline.dense import exact
    from pipeline.dense.exact_gpu import GpuVectors

    def candidates(passages: int, k: int) -> tuple[float, int]:
        """Returns (simulated seconds, peak in bytes)."""
        resident_ND = torch.empty(passages, size.dimensions, dtype=torch.float16, device="cuda")
        vectors = GpuVectors(np.zeros((1, size.dimensions), np.float32), resident_ND)
        question_QD = torch.empty(size.queries, size.dimensions, device="cuda")
        roofline = Roofline(0.0)
        with roofline:
            vectors._candidates(question_QD, k + max(exact.SPARE, k // 10), None)
        return sum(roofline.seconds.values()), roofline.peak

    out: Simulated = {}
    loading = 2 * size.searched * size.dimensions / 25e9  # float16 over PCIe 5, at half of its rate
    for k in LISTS:
        (few, _), (many, peak) = (candidates(number, k) for number in (size.searched // 2, size.searched))
        out[f"k={k}"] = {
            "ms": 1000 * many,
            "questions_per_second": size.queries / many,
            "peak_GiB": peak / 2**30,
            "load_ms": 1000 * loading,
            "marco_minutes": marco_seconds(few, many, loading, size) / 60,
        }
    return out
