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
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from pipeline.errors import LESS_MEMORY, InputError
from pipeline.runtime.checkpoints import saved_state
from pipeline.runtime.processes import cores, ending, environment, listen, python
from pipeline.runtime.work import Machine, Progress

ALLOCATOR = "glibc.malloc.mmap_threshold={}:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"
TRAINING, ENCODING = 1 << 22, 1 << 30
"""Bytes. What is smaller stays when it is freed, so that the next step does not fault its pages in again. In training
what is large goes back to the kernel, for keeping that fragments: from thresholds of 32 MiB on the peak grows with
the batch. In encoding each call needs what the one before it needed, and keeps all: a third faster at 12 x 768. (Huge
pages for what is large: faster on a fresh machine, a tenth slower where its memory had all been in use before.)"""
JOB = "job.json"
"""In the folder of checkpoints: what the other nodes of a training run."""
TAIL = 60
"""Lines of a failed child's stderr that its error shows."""
RANK_FAILED = "failed (exitcode: {})"
"""How torchrun begins the report of the rank that failed first."""


def launch(
    function: str,
    arguments: Mapping[str, Any],
    machine: Machine,
    progress: Progress,
    checkpoints: Path,
    kept: int = TRAINING,
) -> dict[str, Any]:
    """Calls `function` ("pipeline.module:name") as name(progress=..., device=..., **arguments) on every rank.

    `arguments` must be JSON (paths as strings); what this machine's first rank returns comes back, through JSON too.
    On the CPU a training that has a checkpoint in `checkpoints` keeps its ranks and threads, for these change the
    bytes of the result. `kept`: TRAINING, or ENCODING where nothing is learnt.

    Raises `InputError` where the child did, else `RuntimeError` with the child's traceback or last lines.
    Whatever exception ends this call (a cancelled run too) ends every process that it started.
    """
    device = device_of(machine)
    ranks, threads = layout(machine, device, checkpoints)
    job = {
        "id": uuid.uuid4().hex,
        "function": function,
        "arguments": dict(arguments),
        "device": device,
        "ranks": ranks,
        "threads": threads,
        "torchrun": machine.torchrun,
        "tf32": machine.tf32,
    }
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        child = subprocess.Popen(
            python("pipeline.runtime.child", json.dumps(job)),
            env=child_environment(device, threads, kept, alone=not machine.torchrun),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        try:
            if machine.torchrun:
                announce(job, checkpoints)
            answer = listen(child, progress)
            code = child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            (checkpoints / JOB).unlink(missing_ok=True)
        if "result" in answer:  # all ranks were done, whatever befalls one that leaves (gloo's threads may abort it)
            return answer["result"]
        if "input_error" in answer:
            raise InputError(answer["input_error"])
        if "error" in answer:
            raise RuntimeError(f"{function} failed in its child process:\n{answer['error']}")
        last = last_words(stderr)
        killed = code == -signal.SIGKILL or RANK_FAILED.format(-signal.SIGKILL) in last
        memory = f" (out of memory? {LESS_MEMORY})" if killed else ""
        raise RuntimeError(f"{function} failed in its child process, {ending(code)}{memory}:\n{last}")


def announce(job: Mapping[str, Any], checkpoints: Path) -> None:
    """Tells the other nodes what to run (pipeline/runtime/multi_node.py)."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    unfinished = checkpoints / f"{JOB}.part"
    unfinished.write_text(json.dumps(job))
    unfinished.rename(checkpoints / JOB)


def layout(machine: Machine, device: str, checkpoints: Path) -> tuple[int, int]:
    """Ranks and threads of each. On the CPU a training that goes on keeps those it began with."""
    state = saved_state(checkpoints)
    if state and state["device"] == device == "cpu":
        return state["ranks"], state["threads"]
    if device == "cuda":
        ranks = machine.ranks or max(gpus(), 1)
        return ranks, machine.threads or max(cores() // ranks, 1)
    return machine.ranks or min(cores(), 8), machine.threads or 1


def device_of(machine: Machine) -> Literal["cpu", "cuda"]:
    """Where `auto` leads on this machine."""
    return "cuda" if machine.device == "cuda" or (machine.device == "auto" and gpus()) else "cpu"


def of_shards(machine: Machine) -> Machine:
    """The machine of children that make shards: on the CPU one, which forks; on GPUs a rank for each."""
    if device_of(machine) == "cuda":
        return machine.model_copy(update={"ranks": 0, "torchrun": []})
    return machine.model_copy(update={"ranks": 1, "threads": 1, "torchrun": []})


def gpus() -> int:
    """CUDA devices that torch can use. Where the driver shows none, torch is not even imported."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return 0
    import torch

    return torch.cuda.device_count()


def child_environment(device: str, threads: int, kept: int = TRAINING, alone: bool = True) -> dict[str, str]:
    """A child's environment, with what its speed hangs on. `alone`: no other machine takes part."""
    added = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    added["PYTHONFAULTHANDLER"] = "1"  # a child that aborts says where it was
    if device == "cpu":
        added["GLIBC_TUNABLES"] = ALLOCATOR.format(kept)
    if device == "cpu" and alone:
        # Ranks of one machine meet on its loopback: no name service, no firewall.
        added |= {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    return {**environment(), **added}


def last_words(stderr: IO[str]) -> str:
    """The last lines of a failed child's stderr; of torchrun's own report the line alone that names the rank."""
    stderr.seek(0)
    lines = stderr.readlines()
    named = [i for i, line in enumerate(lines) if RANK_FAILED.split("{")[0] in line]
    return "".join(lines[: named[0] + 1 if named else None][-TAIL:]).rstrip()
