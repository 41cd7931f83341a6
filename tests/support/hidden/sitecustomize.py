"""Hides from this process what macOS lacks: CPU affinity, prctl, fork, /proc, Linux's calls, more than 256 open files.

Python imports this module when it starts, because its folder is in PYTHONPATH (`make test-portable`); so do all child
processes. macOS has `fork`, but its libraries do not survive it.
"""

import ctypes
import os
import resource
import select
import sys
from types import FrameType
from typing import Any

CALLS = {
    os: (
        *("sched_getaffinity", "sched_setaffinity", "fork", "forkpty", "pidfd_open", "memfd_create", "eventfd"),
        *("posix_fadvise", "posix_fallocate", "copy_file_range", "splice", "sendfile", "O_DIRECT", "O_TMPFILE"),
    ),
    select: ("epoll",),
}
LIBRARY_CALLS = ("prctl",)
OPEN_FILES = 256
READS = ("open", "os.listdir", "os.scandir")
"""Events of Python's audit whose first argument is a path."""
MAY_READ = (f"{os.sep}psutil{os.sep}", f"{os.sep}threadpoolctl.py")
"""Libraries that ask macOS in its own way."""


def hide() -> None:
    for module, names in CALLS.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    find = ctypes.CDLL.__getattr__

    def find_visible(library: ctypes.CDLL, name: str) -> Any:
        if name in LIBRARY_CALLS:
            raise AttributeError(name)
        return find(library, name)

    ctypes.CDLL.__getattr__ = find_visible  # type: ignore[method-assign]
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    sys.addaudithook(refuse_proc)


def refuse_proc(event: str, arguments: tuple[Any, ...]) -> None:
    """Raises FileNotFoundError if other code than MAY_READ opens a file of /proc."""
    if event in READS and str(arguments[0]).startswith("/proc") and not is_allowed(sys._getframe(1)):
        raise FileNotFoundError(2, "hidden by the tests", arguments[0])


def is_allowed(frame: FrameType | None) -> bool:
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in MAY_READ):
            return True
        frame = frame.f_back
    return False


hide()
