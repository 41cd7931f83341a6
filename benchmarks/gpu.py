"""Pre-training steps on a GPU: tokens per second, model FLOP utilisation, hours for the papers' two runs.

    python -m benchmarks.gpu [--shape base] [--documents 2048] [--dropout 0.1] > benchmarks/gpu.json

BERT base in bfloat16, spans and packed sentences of pydocs' real lengths; the published way (padded to 128, eager
attention, full vocabulary) in the same autocast on the same GPU. `--shape tiny --device cpu --documents 4` tests the
script itself. The goal is 45 % utilisation.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.paired import Figures, Step
from benchmarks.steps import SHAPES, ours, theirs
from pipeline.training.flops import peak

WARM_UP, STEPS = 3, 10
BUDGET = 32_768
"""Tokens of a chunk."""
CHUNK = 128
"""Sequences of a chunk of the published way."""
CONDENSER_TOKENS = 8 * 4.3e9
"""Eight epochs of Wikipedia and BookCorpus: 3.3 G words (BERT, section 3.1) at about 1.3 tokens each."""
COCONDENSER_TOKENS = 8 * 3.2e6 * 2 * 128
"""Eight epochs of MS MARCO's documents, two spans of 128 tokens from each."""


def timed(step: Step, device: str) -> Figures:
    """Figures of all steps together, and their `seconds`; the host waits for the GPU before and after, not between."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for i in range(WARM_UP):
        step(i)
    wait()
    started, totals = time.perf_counter(), Counter[str]()
    for i in range(STEPS):
        totals.update(step(WARM_UP + i))
    wait()
    return {**totals, "seconds": time.perf_counter() - started}


def rates(figures: Figures, most: float | None) -> Figures:
    """Returns seconds per step, tokens per second, and the utilisation if the device's peak is known."""
    seconds = figures["seconds"]
    out = {"seconds": seconds / STEPS, "tokens_per_second": figures["tokens"] / seconds}
    return out | ({"mfu": figures["operations"] / seconds / most} if most and "operations" in figures else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", default="base", choices=SHAPES)
    parser.add_argument(
        "--documents", type=int, default=2048, help="of a coCondenser step; as many blocks for Condenser"
    )
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here; --shape tiny --device cpu --documents 4 tries the script")
    most, n = peak(given.device), given.documents
    common: dict[str, Any] = {"shape": given.shape, "dropout": given.dropout, "device": given.device}
    blocks = {**common, "kind": "blocks", "sequences": n}
    spans = {**common, "kind": "spans", "sequences": 2 * n, "pairs": True}
    ways: dict[str, Callable[[], Step]] = {
        "condenser": partial(ours, **blocks, budget=BUDGET),
        "cocondenser": partial(ours, **spans, budget=BUDGET),
        "cocondenser, cached": partial(ours, **spans, budget=BUDGET, cache="always"),
        "condenser, published": partial(theirs, **blocks, chunk=CHUNK),
        "cocondenser, published": partial(theirs, **spans, chunk=CHUNK),
    }
    out: dict[str, Any] = {"device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu"}
    for name, way in ways.items():
        out[name] = rates(timed(way(), given.device), most)
        print(f"{name}: {out[name]}", file=sys.stderr)
    for name in ("condenser", "cocondenser"):
        published = out[f"{name}, published"]["tokens_per_second"]
        out[f"{name}, ratio to published"] = out[name]["tokens_per_second"] / published
    out["hours_condenser"] = CONDENSER_TOKENS / out["condenser"]["tokens_per_second"] / 3600
    out["hours_cocondenser"] = COCONDENSER_TOKENS / out["cocondenser"]["tokens_per_second"] / 3600
    print(json.dumps(out, indent=2))


if __name__ == "__main__":
    main()
