"""A process's peak memory."""

import re
from pathlib import Path


def peak_bytes() -> int:
    """Returns the most bytes that this process held at once (the kernel's VmHWM).

    The maximum resident set size of `getrusage` and `wait4` would count that of the process that started it, up to
    its exec.
    """
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024
