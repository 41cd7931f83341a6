"""Runs a function in child processes: one, or several ranks. The calling process holds no model.

The child leads its own session, so a terminal's Ctrl-C reaches only the caller, which then ends the child. Child and
ranks die with their parent (`die_with_parent`): kill -9 of the caller leaves nothing behind. On Linux they die when the
*thread* that started the child ends, so call `launch` from a thread that lives as long as the work.
"""

import contextlib
import json
import os
import signal
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from pipeline.config import number_or
from pipeline.errors import LESS_MEMORY, InputError
from pipeline.runtime import bfloat16, host
from pipeline.runtime.checkpoints import saved_state
from pipeline.runtime.host import cores, has_apple_silicon
from pipeline.runtime.precision import Precision
from pipeline.runtime.processes import (
    RANK_FAILED,
    cache_folder,
    end_child,
    ending,
    environment,
    listen,
    python,
    start_child,
)
from pipeline.runtime.work import Machine, Progress

ALLOCATOR = "glibc.malloc.mmap_threshold={}:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"
TRAINING, ENCODING = 1 << 22, 1 << 30
"""Bytes. glibc keeps smaller blocks when they are freed, so the next step does not fault their pages in again. In
training, larger blocks go back to the kernel, because keeping them fragments memory: from thresholds of 32 MiB on, the
peak grows with the batch. In encoding, each call needs the blocks of the previous call, so all are kept: a third faster
at 12 x 768. (Huge pages for large blocks: faster on a fresh machine, a tenth slower once all its memory was in use.)"""
CUDA_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that set PyTorch's allocator, the second with its name before version 2.9. The user's own value counts."""
KERNELS = "TORCHINDUCTOR_CACHE_DIR"
"""Variable that sets where compiled kernels are kept."""
MPS_FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
"""If it is 1, the CPU computes what a Mac's GPU cannot. The user's own value counts."""
JOB = "job.json"
"""File in the checkpoints folder: the job that the other nodes of a training run."""
TAIL = 60
"""Lines of a failed child's stderr that its error shows."""


def launch(
    function: str,
    arguments: Mapping[str, Any],
    machine: Machine,
    progress: Progress,
    checkpoints: Path,
    kept: int = TRAINING,
) -> dict[str, Any]:
    """Calls `function` ("pipeline.module:name") as name(progress=..., device=..., **arguments) on every rank.

    `arguments` must be JSON (paths as strings). Returns the result of this machine's first rank, also through JSON.
    A training with a checkpoint in `checkpoints` keeps its precision, and on the CPU its ranks and threads, because
    they change the bytes of the result. `kept`: TRAINING, or ENCODING if nothing is trained.

    Raises `InputError` if the child did, else `RuntimeError` with the child's traceback or last lines.
    Any exception that ends this call (also a cancelled run) ends every process that it started.
    """
    device = device_of(machine)
    ranks, threads = layout(machine, device, checkpoints)
    forks = ranks > 1 and device == "cpu" and not machine.torchrun and host.can_fork()
    job: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "function": function,
        "arguments": dict(arguments),
        "device": device,
        "ranks": ranks,
        "threads": threads,
        "torchrun": machine.torchrun,
        "tf32": machine.tf32,
        "precision": precision_of(machine, checkpoints),
    }
    with tempfile.TemporaryFile("w+", errors="replace") as stderr, tempfile.TemporaryDirectory() as folder:
        job["meeting_file"] = str(Path(folder) / "ranks") if forks else None
        child = start_child(
            python("pipeline.runtime.child", json.dumps(job)),
            child_environment(device, threads, kept, alone=not machine.torchrun),
            stderr,
        )
        try:
            if machine.torchrun:
                announce(job, checkpoints)
            reply = listen(child, progress)
            code = child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            end_child(child)
            (checkpoints / JOB).unlink(missing_ok=True)
        if "result" in reply:  # all ranks are done, even if one aborts while it exits (in gloo's threads)
            return reply["result"]
        if "input_error" in reply:
            raise InputError(reply["input_error"])
        last = last_lines(stderr)
        killed = code == -signal.SIGKILL or RANK_FAILED.format(-signal.SIGKILL) in last
        if "error" in reply and not killed:  # the error of a rank that lost its connection to a killed one says less
            raise RuntimeError(f"{function} failed in its child process:\n{reply['error']}")
        memory = f" (out of memory? {LESS_MEMORY})" if killed else ""
        ended = f"{function} failed in its child process, {ending(code)}{memory}"
        raise RuntimeError(f"{ended}:\n{last}" if last else ended)


def announce(job: Mapping[str, Any], checkpoints: Path) -> None:
    """Writes the job for the other nodes of the training (pipeline/runtime/multi_node.py)."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    unfinished = checkpoints / f"{JOB}.part"
    unfinished.write_text(json.dumps(job))
    unfinished.rename(checkpoints / JOB)


def layout(machine: Machine, device: str, checkpoints: Path | None) -> tuple[int, int]:
    """Returns (ranks, threads of each rank). On the CPU a resumed training keeps those of its checkpoint.

    `checkpoints`: None if nothing is resumed.
    """
    state = saved_state(checkpoints)
    if state and state["device"] == device == "cpu":
        return state["ranks"], state["threads"]
    if device != "cpu":
        ranks = 1 if device == "mps" else number_or(machine.ranks, max(gpus(), 1))
        return ranks, number_or(machine.threads, max(cores() // ranks, 1))
    return number_or(machine.ranks, min(cores(), 8)), number_or(machine.threads, 1)


def device_of(machine: Machine) -> Literal["cpu", "cuda", "mps"]:
    """Returns the device of `machine`; `auto` is CUDA if this machine has such a GPU, else MPS on Apple silicon."""
    if machine.device != "auto":
        return machine.device
    if gpus():
        return "cuda"
    return "mps" if has_apple_silicon() else "cpu"


def precision_of(machine: Machine, checkpoints: Path | None) -> Precision:
    """Returns the precision of `machine`. A resumed training keeps that of its checkpoint, on the same device."""
    device, state = device_of(machine), saved_state(checkpoints)
    if device == "mps":
        return "float32"
    if state and state["device"] == device:
        older = "float32" if device == "cpu" else "bfloat16"  # earlier versions saved none
        return "float32" if state.get("precision", older) == "float32" else "bfloat16"
    if machine.precision != "auto":
        return machine.precision
    if device == "cuda":
        return "bfloat16"
    # The processors of several nodes may differ.
    return "bfloat16" if not machine.torchrun and bfloat16.speedup() >= bfloat16.FASTER else "float32"


def non_default_precision(machine: Machine) -> Precision | None:
    """Returns the precision of processes that build shards. None: the default, bfloat16 on CUDA, else float32."""
    precision, default = machine.precision, "bfloat16" if device_of(machine) == "cuda" else "float32"
    return None if precision == "auto" or precision == default else precision


def of_shards(machine: Machine) -> Machine:
    """Returns the machine for processes that build shards: on the CPU one, else one rank for each GPU."""
    if device_of(machine) != "cpu":
        return machine.model_copy(update={"ranks": "auto", "torchrun": []})
    return machine.model_copy(update={"ranks": 1, "threads": 1, "torchrun": []})


def one_process(machine: Machine, threads: int | None = None) -> Machine:
    """Returns the machine for one process with a model, which may use a GPU.

    `threads`: of the process if `machine.threads` is `auto`. None: by `layout`, so that on a CPU it has one: enough for
    little work, and the number of cores then changes no byte of the result.
    """
    chosen = machine.threads if threads is None else number_or(machine.threads, threads)
    return machine.model_copy(update={"ranks": 1, "torchrun": [], "threads": chosen})


def without_model(machine: Machine) -> Machine:
    """Returns the machine for one process without a model, on the CPU."""
    on_one = {"device": "cpu", "ranks": 1, "threads": 1, "torchrun": []}
    return machine.model_copy(update=on_one | {"precision": "float32"})  # so none is measured


def gpus() -> int:
    """Returns the number of CUDA devices that torch can use. Does not import torch if the driver shows none."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return 0
    import torch

    return torch.cuda.device_count()


def check_processes(machine: Machine) -> None:
    """Raises InputError if a Mac's GPU shall compute in bfloat16, or a training on it shall have several processes."""
    if device_of(machine) != "mps":
        return
    if machine.precision == "bfloat16":
        raise InputError("machine.precision: bfloat16, but a Mac's GPU computes in float32; set auto, or device: cpu")
    if machine.torchrun:
        raise InputError("machine.torchrun: a training on several nodes uses cuda or cpu; set machine.device")
    if number_or(machine.ranks, 1) > 1:
        raise InputError(f"machine.ranks: {machine.ranks}, but a Mac's GPU has one process; set auto, or device: cpu")


def child_environment(device: str, threads: int, kept: int = TRAINING, alone: bool = True) -> dict[str, str]:
    """Returns a child's environment, with the settings that its speed depends on.

    `alone`: no other machine takes part.
    """
    added = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    added["PYTHONFAULTHANDLER"] = "1"  # a child that aborts prints its stack
    if device == "cuda" and not any(name in os.environ for name in CUDA_ALLOCATOR):
        # Chunks differ in size. Without it, a nearly full GPU's memory breaks into pieces that are too small.
        added[CUDA_ALLOCATOR[0]] = "expandable_segments:True"
    if device == "cuda" and KERNELS not in os.environ:  # PyTorch's own choice is a temporary folder
        added[KERNELS] = str(cache_folder() / "kernels")
    if device == "mps":
        added[MPS_FALLBACK] = os.environ.get(MPS_FALLBACK, "1")
    if device == "cpu":
        added["GLIBC_TUNABLES"] = ALLOCATOR.format(kept)
    if alone:
        # Ranks of one machine connect through its loopback: no name service, no firewall.
        added |= {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", host.LOOPBACK)}
    return {**environment(), **added}


def last_lines(stderr: IO[str]) -> str:
    """Returns the last lines of a failed child's stderr; of torchrun's report only the line that names the rank."""
    stderr.seek(0)
    lines = stderr.readlines()
    named = [i for i, line in enumerate(lines) if RANK_FAILED.split("{")[0] in line]
    return "".join(lines[: named[0] + 1 if named else None][-TAIL:]).rstrip()
