"""Builds a stage's shards on a Ray cluster: each part is a Prefect task run with a child process.

The cluster is used only while shards are built, so that no training depends on it. If a worker or a machine dies,
Ray starts its part again; finished shards are not built again.
"""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from pipeline.errors import InputError
from pipeline.formatting import counted
from pipeline.runtime import shards
from pipeline.runtime.launch import ENCODING, launch
from pipeline.runtime.work import Job, Machine, Progress, silent
from tasks.api import send_the_rest
from tasks.locks import turn_on_gpus
from tasks.ray_cluster import SHARED, cluster, one_line_error, resources

PARTS = 3
"""Parts for each core or GPU of the cluster. More parts cost seconds each; fewer leave devices idle at the end."""
RETRIES = 3
SECONDS_BETWEEN_LOOKS = 0.3
LOOKS_BETWEEN_LISTINGS = 10
"""Listing thousands of shards is slow on a network file system."""
SECONDS_TO_STOP = 5.0
FOUND = "Cached"
"""The state of a part whose shards all exist."""


@dataclass(frozen=True)
class Part:
    name: str
    function: str
    arguments: Mapping[str, Any]
    folder: Path
    numbers: Sequence[int]
    machine: Machine
    finished: bool


def report_part(_task: Any, _run: Any, state: State[Any]) -> None:
    """Sends a part's last events before Ray ends its worker; otherwise the page would miss its end."""
    if state.name != FOUND:  # these run in the flow's process, which sends all events at its end
        send_the_rest()


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    task_run_name="{part.name}",
    on_completion=[report_part],
    on_failure=[report_part],
)
def build_part(part: Part) -> State[str]:
    """Builds the missing shards of a part in one child process. The state's name is Cached if none was missing."""
    host = socket.gethostname()
    if part.finished:
        return Completed(name=FOUND, message=counted(len(part.numbers), "shards"), data=host)
    if not part.folder.is_dir():
        raise InputError(f"machine.ray: {host} does not see {part.folder}: {SHARED}")
    log = get_run_logger()
    with turn_on_gpus(part.machine.device, lambda index: log.info("waiting for GPU %d of %s", index, host)):
        arguments = {**part.arguments, "workers": 1, "numbers": list(part.numbers)}
        launch(part.function, arguments, part.machine, silent, part.folder, ENCODING)
    return Completed(message=f"{counted(len(part.numbers), 'shards')} on {host}", data=host)


def spread(node: str, progress: Progress, job: Job, machine: Machine) -> None:
    """Builds the missing shards of the job on the cluster of `machine`.

    Raises the error of a part, and RuntimeError if the cluster gives up a part.
    """
    import ray
    from prefect_ray.context import remote_options

    with cluster(machine, get_run_logger().info) as runner:
        device, slots = resources(machine)
        # The processors of the cluster may differ, and all parts use one precision.
        precision = machine.precision if machine.precision != "auto" else "bfloat16" if device == "cuda" else "float32"
        get_run_logger().info("%s: all parts compute in %s", node, precision)
        same = {"device": device, "ranks": 1, "precision": precision}
        parts = cut_job(node, job, machine.model_copy(update=same), PARTS * slots)
        waiting: dict[Any, tuple[str, Any]] = {}
        with stopping(waiting), remote_options(num_cpus=1, num_gpus=int(device == "cuda"), max_retries=RETRIES):
            for part in parts:
                if part.finished:
                    build_part(part, return_state=True)
                else:
                    future = runner.submit(build_part, {"part": part})
                    waiting[future.wrapped_future] = part.name, future
            total = shards.row_count(job.spans, range(len(job.spans)))
            looks = 0
            while waiting:
                looks += 1
                time.sleep(SECONDS_BETWEEN_LOOKS)  # not in ray.wait: a signal there is lost in an error of Ray's
                ended, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
                for one in ended:
                    name, future = waiting.pop(one)
                    try:
                        future.result()
                    except ray.exceptions.RayTaskError as error:  # before the part starts: its code cannot be imported
                        raise RuntimeError(f"{name}: {one_line_error(error)}") from error
                    except ray.exceptions.RayError as error:
                        raise RuntimeError(
                            f"{name}: Ray gave it up after {RETRIES} retries: {one_line_error(error)}"
                        ) from error
                if ended or looks % LOOKS_BETWEEN_LISTINGS == 0:
                    progress(shards.row_count(job.spans, shards.present(job.folder, job.spans)), total, job.unit)
    if left := shards.missing(job.folder, job.spans):
        raise InputError(f"machine.ray: of the cluster's shards {len(left)} are not in {job.folder}: {SHARED}")


def cut_job(node: str, job: Job, machine: Machine, most: int) -> list[Part]:
    """Returns the job in at most `most` parts of about equal numbers of rows, named `NODE 3/12`."""
    numbers, missing = shards.by_size(job.spans, range(len(job.spans))), {*shards.missing(job.folder, job.spans)}
    count = min(most, len(numbers))
    owned = [numbers[i::count] for i in range(count)]
    return [
        Part(f"{node} {i}/{count}", job.function, job.arguments, job.folder, own, machine, missing.isdisjoint(own))
        for i, own in enumerate(owned, 1)
    ]


@contextmanager
def stopping(waiting: Mapping[Any, Any]) -> Iterator[None]:
    """Cancels what still waits when the block ends; first without force, which lets a part stop its child process."""
    import ray

    try:
        yield
    finally:
        left = list(waiting)
        for force in (False, True):
            for one in left:
                ray.cancel(one, force=force)
            if left:
                _, left = ray.wait(left, num_returns=len(left), timeout=SECONDS_TO_STOP)
