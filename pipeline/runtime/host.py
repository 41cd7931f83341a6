"""What this machine and its system have: cores, memory, the processor's name, and calls that only some systems have.

Figures of the whole machine come from psutil, which asks each system in its own way. Only what psutil lacks is read
here: the cores that a process may use, a container's limits, and the processor's name.
"""

import ctypes
import math
import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import psutil

PROCESSORS = Path("/proc/cpuinfo")
"""Linux's description of the processors."""
GROUP = Path("/sys/fs/cgroup")
"""Folder of a container's own limits (Linux, cgroup v2)."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
"""Name of a machine's network interface to itself."""


def cores() -> int:
    """Returns the number of processor cores that this process may use, at least 1.

    Where the system says so, only those on which the process may run. In a container no more than its share of time.
    """
    # macOS does not say.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    return max(1, min(allowed, math.ceil(_cores_of_group(allowed))))


def _cores_of_group(otherwise: int) -> float:
    """Returns how many cores fill the container's share of time; `otherwise` if it has no limit."""
    try:
        limit, period = (GROUP / "cpu.max").read_text().split()
        return otherwise if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return otherwise


def free_memory() -> int:
    """Returns the bytes of memory that are free on this machine, or in its container if that has a lower limit."""
    free = int(psutil.virtual_memory().available)
    limit = GROUP / "memory.max"
    if limit.is_file() and limit.read_text().strip() != "max":
        parts = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        used = int((GROUP / "memory.current").read_text()) - int(parts["inactive_file"])  # cached files can be freed
        free = min(free, int(limit.read_text()) - used)
    return free


def processor_name() -> str:
    """Returns the processor's name, such as `AMD EPYC 9654 96-Core Processor` or `Apple M2`."""
    fields = _processor_fields()
    # ARM's have no name on Linux, but numbers of the maker and the core.
    parts = [fields[name] for name in ("model name", "CPU implementer", "CPU part") if name in fields]
    return " ".join(parts) or _name_on_mac() or platform.processor() or platform.machine()


def processor_flags() -> list[str]:
    """Returns the names of the processor's extensions, such as `avx2`; none where the system does not list them."""
    fields = _processor_fields()
    return (fields.get("flags") or fields.get("Features") or "").split()


def _processor_fields() -> dict[str, str]:
    try:
        text = PROCESSORS.read_text()
    except OSError:  # only Linux has it
        return {}
    return dict(re.findall(r"^([^\t:]+?)\s*: (.*)$", text, re.MULTILINE))


def _name_on_mac() -> str:
    if sys.platform != "darwin":
        return ""
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@cache
def has_prctl() -> bool:
    """Whether the kernel can end a process together with its parent. Only Linux can."""
    return hasattr(ctypes.CDLL(None), "prctl")


def can_fork() -> bool:
    """Whether a process with loaded libraries may fork itself to share its work.

    macOS has the call, but its own libraries do not survive it; and forks need a kernel that ends them with their
    parent.
    """
    return hasattr(os, "fork") and has_prctl()


def has_apple_silicon() -> bool:
    """Whether this is a Mac whose GPU torch can use, as far as can be seen without torch (child.py `check_device`)."""
    return sys.platform == "darwin" and platform.machine() == "arm64"
