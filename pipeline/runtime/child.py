"""The child process of `pipeline.runtime.launch`: it runs one function and reports in JSON lines.

With several ranks on this machine's processor it forks itself for each of them, so that libraries are imported once.
Elsewhere it becomes torchrun, which starts this module again for each rank.
All printed text goes to stderr; stdout carries only the JSON lines.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from pipeline.errors import InputError
from pipeline.runtime.host import can_fork
from pipeline.runtime.precision import use_precision
from pipeline.runtime.processes import RANK_FAILED, die_with_parent, log_to, quick_exit, report_errors, reporter


def become_torchrun(text: str) -> None:
    """Runs torchrun in this process, which has asked to die with its parent. Exits at its end, and raises its error."""
    from torch.distributed import run

    job = json.loads(text)
    os.environ["PIPELINE_PARENT"] = str(os.getpid())
    alone = ["--standalone", "--local-addr=127.0.0.1"]
    several = ["--rdzv-backend=c10d", f"--rdzv-id={job['id']}", *job["torchrun"]]  # a later flag overrides
    flags = [*(several if job["torchrun"] else alone), f"--nproc-per-node={job['ranks']}"]
    run.main([*flags, "-m", "pipeline.runtime.child", text])
    sys.exit()


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


def fork_ranks(job: Mapping[str, Any]) -> None:
    """Runs the job in a fork of this process for each rank. If one fails, ends the others and exits."""
    from torch.multiprocessing import ProcessExitedException, start_processes

    resolve_name(job["function"])  # the forks share what this imports
    os.environ["PIPELINE_PARENT"] = str(os.getpid())
    with tempfile.TemporaryDirectory() as folder:
        try:
            start_processes(_run_fork, (job, Path(folder) / "store"), job["ranks"], start_method="fork")
        except ProcessExitedException as error:
            print(RANK_FAILED.format(error.exit_code), f"local_rank: {error.error_index}", file=sys.stderr)
            sys.exit(1)


def _run_fork(rank: int, job: Mapping[str, Any], store: Path) -> None:
    die_with_parent()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(job["ranks"])}
    run_rank(job, f"{store.as_uri()}?rank={rank}&world_size={job['ranks']}")


def run_rank(job: Mapping[str, Any], rendezvous: str) -> None:
    """Runs the job as this process's rank. `rendezvous`: as in `ranks.process_group`."""
    mark_finished, report = quick_exit(), reporter()
    first = os.environ.get("LOCAL_RANK", "0") == "0"  # of this node: rank 0 may run on another node
    if first:
        log_to(report)

    def progress(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        if first:
            report({"progress": [done, total, unit, dict(numbers) if numbers else None]})

    with report_errors(report, mark_finished):
        from pipeline.runtime import ranks

        function = resolve_name(job["function"])
        check_device(job["device"])
        set_tf32(job["tf32"], job["device"])
        use_precision(job["precision"])
        with ranks.process_group(job["device"], rendezvous):
            result = function(progress=progress, device=job["device"], **job["arguments"])
            ranks.meet()  # the files of all ranks exist when this rank reports the result
            if first:
                report({"result": result})
    mark_finished(0)


def main() -> None:
    die_with_parent()
    job = json.loads(sys.argv[1])
    is_alone = job["ranks"] == 1 and not job["torchrun"]
    if "RANK" in os.environ or is_alone:
        run_rank(job, "env://")
    elif job["device"] == "cpu" and not job["torchrun"] and can_fork():
        fork_ranks(job)
    else:
        become_torchrun(sys.argv[1])


if __name__ == "__main__":
    main()
