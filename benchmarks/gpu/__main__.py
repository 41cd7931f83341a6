"""Speeds on one GPU: what BERT base reaches in training, encoding and search, and what other code reaches there.

    python -m benchmarks.gpu [--seconds 540] [--out benchmarks/gpu.json]
    python -m benchmarks.gpu --simulate           # without a GPU; writes benchmarks/gpu_simulated.json
    python -m benchmarks.gpu --device cpu --shape tiny --seconds 20 --out /tmp/gpu.json   # tries the script

benchmarks/README.md describes the parts and the figures.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=540, help="the run ends within this time")
    parser.add_argument("--out", type=Path, help="JSON, written after every part")
    parser.add_argument("--shape", default="base", choices=["base", "tiny"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", nargs="*", default=[], metavar="PART", help="these parts instead of all")
    parser.add_argument("--simulate", action="store_true", help="a roofline over the kernels, without a GPU")
    options = parser.parse_args()
    out = options.out or HERE / ("gpu_simulated.json" if options.simulate else "gpu.json")
    if options.simulate:  # loads a fake device, which must be there before torch
        from benchmarks.gpu.simulation import simulate

        simulate(options.shape, out, options.only)
        return
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # as in a real run
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device: --simulate needs none; --shape tiny --device cpu tries the script")
    from benchmarks.gpu.run import run

    run(options.shape, options.device, options.seconds, out, options.only)


if __name__ == "__main__":
    main()
