"""How fast this machine's processor multiplies bfloat16, next to float32. It is measured once.

Some processors have instructions for it (AMX; AVX512-BF16, on some of them no faster than float32). Without one,
bfloat16 is about 90 times slower.
"""

import logging
import subprocess
import time
from functools import cache
from importlib.metadata import version

from pipeline.runtime import host
from pipeline.runtime.measured_cache import read_figures, write_figures
from pipeline.runtime.processes import cache_folder, ending, environment, python

LOG = logging.getLogger(__name__)
FASTER = 1.3
"""From this ratio of speeds on, bfloat16 is used."""
SHAPES = ((64, 256, 256), (2000, 256, 1024), (2000, 384, 1536), (2000, 768, 3072))
"""(rows, inputs, outputs): the largest maps of models of three sizes, with a CPU's usual number of tokens. First a
small one: where there is no instruction, it decides."""
REPEATS = 5
INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16")
"""Names of the flags of processors (x86, ARM)."""


@cache
def speedup() -> float:
    """Returns the speed of bfloat16's matrix products relative to float32's, on one thread.

    From the user's cache; if this kind of processor is not in it yet, it is measured, which takes some seconds. 1 if
    that fails: then `auto` is float32.
    """
    path, key = cache_folder() / "bfloat16.json", f"{processor()}, torch {version('torch')}"
    if key in (known := read_figures(path)):
        return known[key]
    child = subprocess.run(
        python("pipeline.runtime.bfloat16"),
        env={**environment(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if child.returncode:
        last = ": ".join([ending(child.returncode), *child.stderr.splitlines()[-1:]])
        LOG.warning("the speed of bfloat16 cannot be measured, so float32 is taken to be as fast (%s)", last)
        return 1.0
    ratio = round(float(child.stdout), 3)
    if key in (known := read_figures(path)):  # another run measured meanwhile: both use the same precision
        return known[key]
    write_figures(path, {key: ratio})
    return ratio


def processor() -> str:
    """Returns the processor's name, with its instructions for bfloat16: a virtual machine may hide them."""
    known = host.processor_flags()
    return " ".join([host.processor_name(), *(one for one in INSTRUCTIONS if one in known)])


def measure() -> float:
    """Returns the smallest ratio of all SHAPES; stops at the first one below FASTER."""
    import torch

    smallest = float("inf")
    for rows, inputs, outputs in SHAPES:
        single = torch.randn(rows, inputs), torch.randn(inputs, outputs)
        low = tuple(x.bfloat16() for x in single)
        best = [float("inf"), float("inf")]
        for _ in range(REPEATS):  # in turn, because other work may slow both down
            for place, (a, b) in enumerate((single, low)):
                started = time.perf_counter()
                torch.mm(a, b)
                best[place] = min(best[place], time.perf_counter() - started)
        smallest = min(smallest, best[0] / best[1])
        if smallest < FASTER:
            break
    return smallest


if __name__ == "__main__":
    print(measure())
