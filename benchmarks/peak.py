"""A process's peak memory."""

import re
import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Returns the most bytes that this process held at once.

    On Linux the kernel's VmHWM, because the maximum resident set size of `getrusage` and `wait4` would count that of
    the process that started it, up to its exec.
    """
    if not STATUS.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text())
    assert found
    return int(found[1]) * 1024
