"""What all child processes of the library share: how they find its code, are listened to, and how their end is told."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.runtime import network
from pipeline.runtime.work import Machine, Progress

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds this code."""
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Variables by which torchrun tells a process that it is one of its ranks."""
STRANGE = ("PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONSTARTUP")
"""Variables that would keep a child from its end, or have it write in another encoding than its caller reads."""
SECONDS_BETWEEN_PROGRESS = 0.3

Say = Callable[[Mapping[str, Any]], None]


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` in a Python that never looks for modules in the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """The environment of every child process: the caller's, with what makes a child work as this code expects.

    Set: where this code lies, the parent to die with, that no module comes from the current folder (for what a child
    starts itself, too), UTF-8 for texts and file names (Java's as well), no proxy on the way to this machine.
    Removed: what an outer torchrun set (a child that saw it would take itself for one of that training's ranks), the
    entries of PYTHONPATH that depend on the current folder, and STRANGE.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys([str(ROOT), *(entry for entry in given if os.path.isabs(entry))]))
    mine = {name: value for name, value in os.environ.items() if name not in (*TORCHRUN, *STRANGE)}
    network.spare_loopback(mine)
    mine |= {"PIPELINE_PARENT": str(os.getpid()), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    if sys.getfilesystemencoding() == "utf-8":  # else the child would name files in another way than its caller
        mine |= {"PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"}
    return mine


def reporter() -> Say:
    """What sends JSON lines to the caller, in the child. From now on whatever else writes to stdout writes to stderr.

    Of the messages `{"progress": [done, total, ...]}` one every SECONDS_BETWEEN_PROGRESS is sent, and the last.
    """
    channel = os.dup(1)
    os.dup2(2, 1)
    said = 0.0

    def say(message: Mapping[str, Any]) -> None:
        nonlocal said
        if "progress" in message:
            done, total = message["progress"][:2]
            if done != total and time.monotonic() - said < SECONDS_BETWEEN_PROGRESS:
                return
            said = time.monotonic()
        # One write a line: lines of two ranks that fail together do not mix.
        os.write(channel, (json.dumps(message) + "\n").encode())

    return say


@contextlib.contextmanager
def errors_told(say: Say) -> Iterator[None]:
    """Ends the child, once the caller was told why: `input_error` (exit code 2) or `error`, a traceback (1)."""
    try:
        yield
    except InputError as error:
        say({"input_error": str(error)})
        sys.exit(2)
    except Exception:
        say({"error": traceback.format_exc()[-3000:]})
        sys.exit(1)


def listen(child: subprocess.Popen[str], progress: Progress) -> dict[str, Any]:
    """Passes the child's progress on until its end; returns its last words: a result or the first error."""
    answer: dict[str, Any] = {}
    assert child.stdout is not None
    for line in child.stdout:
        message = json.loads(line)
        if "progress" in message:
            progress(*message["progress"])
        else:
            answer = {**message, **answer}
    return answer


def ending(code: int) -> str:
    """How a process with this return code has ended."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def workers(machine: Machine) -> int:
    """Processes that encode, search, score and mine on the CPU, and threads of Lucene."""
    return machine.workers or min(cores(), 8)


PR_SET_PDEATHSIG = 1


def signal_with_parent(number: int) -> None:
    """Asks the kernel to send this process the signal when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def die_with_parent() -> None:
    """Asks the kernel to kill this process with the thread that started it; PIPELINE_PARENT holds the parent's id."""
    signal_with_parent(signal.SIGKILL)
    if os.getppid() != int(os.environ["PIPELINE_PARENT"]):  # it died before the kernel was asked
        os._exit(1)
