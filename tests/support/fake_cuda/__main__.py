"""Runs the cases (all, or those whose names hold one of the arguments); prints a line of JSON for each.

PYTHONPATH=tests/support:. python -m fake_cuda [WORDS ...]
"""

import json
import sys
import time
import traceback
from contextlib import nullcontext
from typing import Any

from fake_cuda import device


def main(wanted: list[str]) -> None:
    device.load()
    from torch._subclasses.fake_tensor import FakeTensorMode

    from fake_cuda.cases import CASES
    from fake_cuda.mps_cases import MPS_CASES
    from fake_cuda.recorder import fake_device

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    for cases, chosen in ((CASES, nullcontext), (MPS_CASES, device.as_mps)):
        for name, case in cases.items():
            if any(word in name for word in wanted) or not wanted:
                started = time.process_time()
                with chosen(), fake_device(mode):
                    result = outcome(case)
                print(json.dumps({"case": name, "seconds": time.process_time() - started, **result}), flush=True)


def outcome(case: Any) -> dict[str, Any]:
    """Returns what a case records, or its traceback as `error`."""
    from fake_cuda.recorder import Recorder

    recorder = Recorder()
    try:
        returned = case(recorder)
    except Exception:  # one line for each case, whatever happens
        return {"error": traceback.format_exc()}
    return {
        **returned,
        "kernels": recorder.kernels.total(),
        "names": sorted(recorder.kernels),
        "waits": [[*place, count] for place, count in recorder.waits.items()],
        "mixes": [[*place, count] for place, count in recorder.mixes.items()],
        "copies": recorder.copies,
        "types": sorted(recorder.types),
        "products": {name: sorted(types) for name, types in recorder.products.items()},
        "peak": recorder.peak,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
