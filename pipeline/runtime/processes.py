"""Functions for all child processes of the library: command, environment, messages to the caller, and exit."""

import atexit
import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.runtime import network

if TYPE_CHECKING:  # children that only call Java load no pydantic
    from pipeline.runtime.work import Machine, Progress

LOG = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds this code."""
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Variables that torchrun sets for each of its ranks."""
STRANGE = ("PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONSTARTUP")
"""Variables that would stop a child from exiting, or change the encoding of its output."""
SECONDS_BETWEEN_PROGRESS = 0.3

Say = Callable[[Mapping[str, Any]], None]


def cache_folder() -> Path:
    """Returns the user's folder for what can be computed again; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cocondenser"


def python(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs `module` in a Python that does not import from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Returns the environment of every child process: the caller's, with the settings that this code needs.

    Set: the folder of this code, the parent to die with, no imports from the current folder (also for the child's own
    children), UTF-8 for texts and file names (also Java's), no proxy for this machine.
    Removed: the variables of an outer torchrun (with them a child would act as one of its ranks), the entries of
    PYTHONPATH that depend on the current folder, and STRANGE.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys([str(ROOT), *(entry for entry in entries if os.path.isabs(entry))]))
    mine = {name: value for name, value in os.environ.items() if name not in (*TORCHRUN, *STRANGE)}
    network.spare_loopback(mine)
    mine |= {"PIPELINE_PARENT": str(os.getpid()), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    if sys.getfilesystemencoding() == "utf-8":  # else the child would encode file names differently from its caller
        mine |= {"PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"}
    return mine


def reporter() -> Say:
    """Returns a function that sends JSON lines from the child to its caller. All other output to stdout goes to stderr.

    Of the messages `{"progress": [done, total, ...]}` it sends one every SECONDS_BETWEEN_PROGRESS, and the last.
    """
    channel = os.dup(1)
    os.dup2(2, 1)
    sent_at = 0.0

    def report(message: Mapping[str, Any]) -> None:
        nonlocal sent_at
        if "progress" in message:
            done, total = message["progress"][:2]
            if done != total and time.monotonic() - sent_at < SECONDS_BETWEEN_PROGRESS:
                return
            sent_at = time.monotonic()
        # One write per line: lines of two ranks that fail at the same time do not mix.
        os.write(channel, (json.dumps(message) + "\n").encode())

    return report


@contextlib.contextmanager
def report_errors(report: Say, before_exit: Callable[[int], None] = lambda code: None) -> Iterator[None]:
    """Reports an exception to the caller and exits: `input_error` with exit code 2, or `error`, a traceback, with 1.

    `before_exit`: called with the exit code.
    """
    try:
        yield
    except InputError as error:
        report({"input_error": str(error)})
        code = 2
    except Exception:
        report({"error": traceback.format_exc()[-3000:]})
        code = 1
    else:
        return
    before_exit(code)
    sys.exit(code)


def listen(child: subprocess.Popen[str], progress: "Progress") -> dict[str, Any]:
    """Passes on the child's progress and its log lines (`log_to`) until it ends.

    Returns its final message: a result or the first error.
    """
    reply: dict[str, Any] = {}
    assert child.stdout is not None
    for line in child.stdout:
        message = json.loads(line)
        if "progress" in message:
            progress(*message["progress"])
        elif "log" in message:
            LOG.info("%s", message["log"])
        else:
            reply = {**message, **reply}
    return reply


def log_to(report: Say) -> None:
    """Reports the log lines of this library, from level INFO on, to the caller."""

    class Reporter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            report({"log": record.getMessage()})

    own = logging.getLogger("pipeline")
    own.setLevel(logging.INFO)
    own.addHandler(Reporter())


def ending(code: int) -> str:
    """Describes how a process with this return code ended."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


def workers(machine: "Machine") -> int:
    """Returns the number of processes that encode, search, score and mine on the CPU, and of Lucene's threads."""
    from pipeline.config import number_or

    return number_or(machine.workers, min(cores(), 8))


def quick_exit() -> Callable[[int], None]:
    """Returns a function of the exit code. After its call, the exit of this process does not free memory (PyTorch:
    about a second).

    Call `quick_exit` before other code registers functions with `atexit`: these still run.
    """
    exit_code: int | None = None

    def mark_finished(code: int) -> None:
        nonlocal exit_code
        exit_code = code

    def end() -> None:
        if exit_code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            ctypes.CDLL(None).fflush(None)  # of libraries in C
            os._exit(exit_code)

    atexit.register(end)
    return mark_finished


PR_SET_PDEATHSIG = 1


HAS_PRCTL = sys.platform == "linux"
SECONDS_BETWEEN_LOOKS = 1.0
"""At the parent, on systems without prctl."""


def signal_with_parent(number: int) -> None:
    """Asks the kernel to send this process the signal when the thread that started it ends. Only Linux does."""
    if HAS_PRCTL:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def die_with_parent() -> None:
    """Lets this process be killed with the thread that started it. PIPELINE_PARENT holds the parent's id.

    The kernel does it. Without prctl (macOS) a thread of this process looks for its parent, until this process becomes
    another program.
    """
    parent = int(os.environ["PIPELINE_PARENT"])
    signal_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the request to the kernel
        os._exit(1)
    if not HAS_PRCTL:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os.kill(os.getpid(), signal.SIGKILL)
