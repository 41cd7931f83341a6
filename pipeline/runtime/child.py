"""The child process of `pipeline.runtime.launch`: it runs one function and reports in JSON lines.

With several ranks this process becomes torchrun, which starts this module again for each rank.
All printed text goes to stderr; stdout carries only the JSON lines.
"""

import json
import os
import sys
from collections.abc import Mapping
from pkgutil import resolve_name

from pipeline.errors import InputError
from pipeline.runtime.precision import use_precision
from pipeline.runtime.processes import die_with_parent, log_to, quick_exit, report_errors, reporter


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


def main() -> None:
    die_with_parent()
    job = json.loads(sys.argv[1])
    if (job["ranks"] > 1 or job["torchrun"]) and "RANK" not in os.environ:
        become_torchrun(sys.argv[1])
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
        with ranks.process_group(job["device"]):
            result = function(progress=progress, device=job["device"], **job["arguments"])
            ranks.meet()  # the files of all ranks exist when this rank reports the result
            if first:
                report({"result": result})
    mark_finished(0)


if __name__ == "__main__":
    main()
