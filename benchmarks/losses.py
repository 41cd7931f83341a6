"""Whether trainings in bfloat16 on a CPU reach the losses of float32: the same batches, start and number of updates.

    python -m benchmarks.losses [--updates 300]

Condenser and coCondenser with its gradient cache, 4 x 256. (Fine-tuning learns nothing from random weights in so few
updates; benchmarks/README.md compares the demo's.) Prints a line of JSON: float32's mean loss over the first tenth,
each way's over the last tenth, and their ratio; exit code 1 if one is beyond 1 %. It runs on any processor (300 updates
take half an hour of one core; longer where bfloat16 is slow).
"""

import argparse
import json
import sys
from collections.abc import Callable
from statistics import mean

import torch

from benchmarks import steps
from benchmarks.bfloat16 import COCONDENSER
from benchmarks.paired import Step
from pipeline.runtime.precision import Precision, use_precision

TOLERANCE = 0.01
FALLS = 0.97
"""Largest mean loss of the last tenth over that of the first, in float32; above it, a training proves nothing."""
RATE = 1e-4
TRAININGS: dict[str, Callable[[], Step]] = {
    "condenser": lambda: steps.ours(shape="mini", kind="spans", sequences=32, learning_rate=RATE),
    "cocondenser": lambda: steps.ours(**COCONDENSER, learning_rate=RATE),
}


def losses(training: Callable[[], Step], updates: int, precision: Precision) -> tuple[float, float]:
    """Returns the mean loss of the first and of the last tenth of the updates."""
    use_precision(precision)
    step = training()
    losses = [step(i)["loss"] for i in range(updates)]
    tenth = max(1, updates // 10)
    return mean(losses[:tenth]), mean(losses[-tenth:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.losses", description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=300, help="of each training (default: 300)")
    updates = parser.parse_args().updates
    torch.set_num_threads(1)
    found = {}
    for name, training in TRAININGS.items():
        (first, single), (_, low) = (losses(training, updates, one) for one in ("float32", "bfloat16"))
        found[name] = {"first": first, "float32": single, "bfloat16": low, "ratio": low / single}
        print(f"{name}: {first:.3f} to {single:.3f}, bfloat16 {low:.3f}", file=sys.stderr, flush=True)
        if single > FALLS * first:
            sys.exit(f"{name}: float32's loss hardly falls: more updates are needed")
    print(json.dumps(found))
    if beyond := [name for name, x in found.items() if abs(x["ratio"] - 1) > TOLERANCE]:
        sys.exit(f"beyond 1 %: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
