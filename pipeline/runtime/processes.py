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
from typing import IO, TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.runtime import host, network
from pipeline.runtime.host import cores

if TYPE_CHECKING:  # children that only call Java load no pydantic
    from pipeline.runtime.work import Machine, Progress

LOG = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds this code."""
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Variables of each rank's environment, as torchrun sets them."""
STRANGE = ("PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONSTARTUP")
"""Variables that would stop a child from exiting, or change the encoding of its output."""
RANK_FAILED = "failed (exitcode: {})"
"""How the report of the rank that failed first begins: torchrun's, and that of `child.fork_ranks`."""
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
    mine = {name: value for name, value in os.environ.items() if name not in (*RANK_VARIABLES, *STRANGE)}
    network.spare_loopback(mine)
    mine |= {"PIPELINE_PARENT": str(os.getpid()), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    if sys.getfilesystemencoding() == "utf-8":  # else the child would encode file names differently from its caller
        mine |= {"PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"}
    return mine


def start_child(
    command: list[str],
    env: Mapping[str, str] | None = None,
    stderr: IO[str] | None = None,
    own_session: bool = True,
) -> subprocess.Popen[str]:
    """Starts a child process that calls `die_with_parent`. Its messages come through `stdout` (`listen`).

    Its stdin is a pipe that ends with this process, however that ends, and with `end_child`. `env`: else
    `environment()`. `own_session`: a terminal's Ctrl-C reaches only this process, which then ends the child.
    """
    return subprocess.Popen(
        command,
        env=environment() if env is None else env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=own_session,
    )


def end_child(child: subprocess.Popen[str]) -> None:
    """Kills the child if it runs, waits for its end and closes its pipes."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # of an unread line
                pipe.close()


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


def signal_with_parent(number: int) -> None:
    """Lets this process get the signal when the process that started it ends. PIPELINE_PARENT holds that one's id.

    Linux sends it when the *thread* ends that started this process. Elsewhere a thread of this process waits for the
    end of stdin, a pipe of the parent (`start_child`), which torchrun's ranks inherit.
    """
    parent = int(os.environ["PIPELINE_PARENT"])
    if host.has_prctl():
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent ended before the request
        os._exit(1)
    if not host.has_prctl():
        threading.Thread(target=_signal_at_end_of_stdin, args=(number,), daemon=True).start()


def _signal_at_end_of_stdin(number: int) -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), number)


def die_with_parent() -> None:
    """Lets this process be killed with the one that started it (`signal_with_parent`)."""
    signal_with_parent(signal.SIGKILL)
