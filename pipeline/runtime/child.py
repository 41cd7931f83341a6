"""The child process of `pipeline.runtime.launch`: it runs one function and reports in JSON lines.

For several ranks on the CPU of one Linux machine it forks itself, so that libraries are imported once. On GPUs, on
macOS and on several nodes it becomes torchrun, which starts this module again for each rank.
All printed text goes to stderr; stdout carries only the JSON lines.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from pipeline.errors import InputError
from pipeline.runtime.precision import use_precision
from pipeline.runtime.processes import (
    RANK_FAILED,
    RANK_VARIABLES,
    Say,
    die_with_parent,
    log_to,
    quick_exit,
    report_errors,
    reporter,
)


def become_torchrun(text: str) -> None:
    """Runs torchrun in this process. Exits when it ends, and raises its error."""
    from torch.distributed import run

    job = json.loads(text)
    os.environ["PIPELINE_PARENT"] = str(os.getpid())
    alone = ["--standalone", "--local-addr=127.0.0.1"]
    several = ["--rdzv-backend=c10d", f"--rdzv-id={job['id']}", *job["torchrun"]]  # a later flag overrides
    no_logs = f"--log-dir={os.devnull}"  # else each training leaves a folder in the temporary folder
    flags = [no_logs, *(several if job["torchrun"] else alone), f"--nproc-per-node={job['ranks']}"]
    run.main([*flags, "-m", "pipeline.runtime.child", text])
    sys.exit()


def fork_ranks(job: Mapping[str, Any]) -> bool:
    """Forks this process for each rank. Returns True in each of them, and False here when all have ended.

    If one fails, ends the others and exits.
    """
    resolve_name(job["function"])  # the ranks share what this imports
    sys.stdout.flush()  # else each rank would write it again
    os.environ["PIPELINE_PARENT"] = str(os.getpid())
    rank_of: dict[int, int] = {}
    for rank in range(job["ranks"]):
        process = os.fork()
        if process == 0:
            die_with_parent()
            os.environ |= dict(zip(RANK_VARIABLES, map(str, (rank, rank, job["ranks"], job["ranks"])), strict=True))
            return True
        rank_of[process] = rank
    while rank_of:
        process, status = os.wait()
        rank, code = rank_of.pop(process), os.waitstatus_to_exitcode(status)
        if code != 0:
            for other in rank_of:
                os.kill(other, signal.SIGKILL)
            print(RANK_FAILED.format(code), f"local_rank: {rank}", file=sys.stderr, flush=True)
            sys.exit(1)
    return False


def set_tf32(tf32: bool, device: str) -> None:
    """Turns TensorFloat-32 on or off (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE turns it on in some images).

    It is on only on CUDA: on a CPU the same setting would round to bfloat16.
    """
    import torch

    torch.set_float32_matmul_precision("high" if tf32 and device == "cuda" else "highest")


def check_device(device: str) -> None:
    """Raises InputError if torch cannot use the GPU of this Mac, as in a virtual machine or on an old macOS."""
    import torch

    if device == "mps" and not torch.backends.mps.is_available():
        raise InputError("machine.device: torch cannot use this machine's GPU by mps; set cpu")


def run_rank(job: Mapping[str, Any], report: Say) -> None:
    """Runs the job as this process's rank. The first rank of this machine reports progress, log and result."""
    from pipeline.runtime import ranks

    first = os.environ.get("LOCAL_RANK", "0") == "0"  # rank 0 may run on another node
    if first:
        log_to(report)

    def progress(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        if first:
            report({"progress": [done, total, unit, dict(numbers) if numbers else None]})

    function = resolve_name(job["function"])
    check_device(job["device"])
    set_tf32(job["tf32"], job["device"])
    use_precision(job["precision"])
    with ranks.process_group(job["device"], job["meeting_file"]):
        result = function(progress=progress, device=job["device"], **job["arguments"])
        ranks.meet()  # the files of all ranks exist when this rank reports the result
        if first:
            report({"result": result})


def main() -> None:
    die_with_parent()
    job = json.loads(sys.argv[1])
    is_rank = "RANK" in os.environ or (job["ranks"] == 1 and not job["torchrun"])
    if not is_rank and not job["meeting_file"]:
        become_torchrun(sys.argv[1])
    mark_finished, report = quick_exit(), reporter()
    with report_errors(report, mark_finished):
        if is_rank or fork_ranks(job):
            run_rank(job, report)
    mark_finished(0)


if __name__ == "__main__":
    main()
