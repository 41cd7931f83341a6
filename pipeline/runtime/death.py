"""How a child process follows its parent into death."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def signal_with_parent(number: int) -> None:
    """Asks the kernel to send this process the signal when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def die_with_parent() -> None:
    """Asks the kernel to kill this process with the thread that started it; PIPELINE_PARENT holds the parent's id."""
    signal_with_parent(signal.SIGKILL)
    if os.getppid() != int(os.environ["PIPELINE_PARENT"]):  # it died before the kernel was asked
        os._exit(1)
