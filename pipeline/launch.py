"""Runs a function in child processes: one, or several ranks by torchrun. The process that calls holds no model.

The child leads a session of its own, so that a terminal's Ctrl-C reaches the caller alone, which then ends the
child. Child and ranks ask the kernel to be killed with their parent (PR_SET_PDEATHSIG): kill -9 of the caller
leaves nothing behind. That signal fires when the *thread* that started the child ends, so call `launch` from a
thread that lives as long as the work.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pipeline.errors import InputError
from pipeline.training import saved_state
from pipeline.work import Machine, Progress

TAIL = 30
"""Lines of a failed child's stderr that its error shows."""


def launch(
    function: str, arguments: Mapping[str, Any], machine: Machine, progress: Progress, checkpoints: Path
) -> dict[str, Any]:
    """Calls `function` ("pipeline.module:name") as name(progress=..., device=..., **arguments) on every rank.

    `arguments` must be JSON (paths as strings); what rank 0 returns comes back, through JSON too. A training that
    has a checkpoint in `checkpoints` keeps its ranks and threads, for these change the bytes of the result.

    Raises `InputError` where the child did, else `RuntimeError` with the child's traceback or last lines.
    Whatever exception ends this call (a cancelled run too) ends every process that it started.
    """
    device = "cuda" if machine.device == "cuda" or (machine.device == "auto" and gpus()) else "cpu"
    ranks, threads = layout(machine, device, checkpoints)
    job = {"function": function, "arguments": dict(arguments), "device": device, "ranks": ranks}
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-m", "pipeline.child", json.dumps(job)],
            env=environment(device, threads),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        try:
            answer = listen(child, progress)
            code = child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if "input_error" in answer:
            raise InputError(answer["input_error"])
        if "error" in answer:
            raise RuntimeError(f"{function} failed in its child process:\n{answer['error']}")
        if code != 0 or "result" not in answer:
            raise RuntimeError(f"{function} failed in its child process, {ending(code)}:\n{tail(stderr)}")
    return answer["result"]


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


def layout(machine: Machine, device: str, checkpoints: Path) -> tuple[int, int]:
    """Ranks and threads of each. A training that goes on keeps those it began with, on the same kind of device."""
    state = saved_state(checkpoints)
    if state and state["device"] == device == "cpu":
        return state["ranks"], state["threads"]
    if device == "cuda":
        ranks = machine.ranks or max(gpus(), 1)
        return ranks, machine.threads or max(cores() // ranks, 1)
    return machine.ranks or min(cores(), 2), machine.threads or 1


def cores() -> int:
    return len(os.sched_getaffinity(0))


def gpus() -> int:
    """CUDA devices that torch can use. Where the driver shows none, torch is not even imported."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return 0
    import torch

    return torch.cuda.device_count()


def environment(device: str, threads: int) -> dict[str, str]:
    """The caller's environment, and what a child's speed hangs on."""
    root = str(Path(__file__).resolve().parents[1])
    added = {
        "PIPELINE_PARENT": str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    if device == "cpu":
        # glibc would give each freed activation back to the kernel and fault its pages in again at the next step.
        added |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30), "MALLOC_TOP_PAD_": str(64 << 20)}
        # Ranks of one machine meet on its loopback: no name service, no firewall.
        added |= {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    return {**os.environ, **added}


def ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")


def tail(stderr: IO[str]) -> str:
    stderr.seek(0)
    return "".join(stderr.readlines()[-TAIL:]).rstrip()
