"""Long work in shards that are finished one by one, so that a kill loses only the unfinished ones.

The bytes of a shard do not depend on the process, machine or time that builds it.
"""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.runtime import host
from pipeline.runtime.spans import Span
from pipeline.runtime.work import Job, Machine, Progress, Work

if TYPE_CHECKING:
    import numpy as np

PART = ".part"
"""Suffix of a file that is being written."""
WRITING_SECONDS = 3600
"""Seconds without a write after which such a file has no writer any more."""
Tick = Callable[[int], None]
"""tick(n): n more rows are finished."""


def finish(job: Job, work: Work, machine: Machine, workers: int) -> None:
    """Builds the missing shards: with `work.elsewhere` if it is set, else in child processes of `machine`."""
    if not missing(job.folder, job.spans):
        return
    remove_left_over(job.folder)
    if work.elsewhere is not None:
        work.elsewhere(job, machine)
        return
    # The same list for all ranks, whatever they have finished: a claimed place is the same shard on all of them.
    numbers = missing(job.folder, job.spans)
    arguments = {**job.arguments, "numbers": numbers}
    launch_sharing(job.function, arguments, machine, workers, len(numbers), work.progress, work.checkpoints)


def launch_sharing(
    function: str,
    arguments: Mapping[str, Any],
    machine: Machine,
    workers: int,
    number: int,
    progress: Progress,
    checkpoints: Path,
) -> None:
    """Calls `function`, which builds `number` shards by `build_shards`, in child processes of `machine` (`launch`).

    On a CPU one process forks itself `workers` times; where it must not, there are as many ranks instead.
    """
    from pipeline.runtime.launch import ENCODING, device_of, launch

    if device_of(machine) == "cpu" and not host.can_fork():
        machine = machine.model_copy(update={"ranks": max(1, min(workers, number))})
    launch(function, {**arguments, "workers": workers}, machine, progress, checkpoints, ENCODING)


def folder_of_model(work: Work, name: str) -> Path:
    """Creates and returns the folder within `work.checkpoints` of a model's shards; another precision has another one.

    An artifact's shards have one precision, also if its build was interrupted.
    """
    from pipeline.runtime.launch import non_default_precision

    precision = non_default_precision(work.machine)
    folder = work.checkpoints / (f"{name}-{precision}" if precision else name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def name(number: int) -> str:
    """Returns the file name of a shard."""
    return f"shard-{number:05d}.npy"


def row_count(of: Sequence[Span], numbers: Iterable[int]) -> int:
    """Returns the number of rows of the shards `numbers` together."""
    return sum(of[i][1] - of[i][0] for i in numbers)


def present(folder: Path, of: Sequence[Span]) -> list[int]:
    """Returns the numbers of the shards that have a file."""
    names = {entry.name for entry in os.scandir(folder)}  # a network file system may cache the lookup of one file
    return [i for i in range(len(of)) if name(i) in names]


def missing(folder: Path, of: Sequence[Span]) -> list[int]:
    """Returns the numbers of the shards that are not finished, the largest first."""
    finished = {i for i in present(folder, of) if _rows(folder / name(i)) == row_count(of, [i])}
    return by_size(of, [i for i in range(len(of)) if i not in finished])


def by_size(of: Sequence[Span], numbers: Iterable[int]) -> list[int]:
    """Sorts shards by size, the largest first: all workers wait for the shard that starts last."""
    return sorted(numbers, key=lambda i: (-row_count(of, [i]), i))


def build_shards(
    folder: Path,
    of: Sequence[Span],
    make: "Callable[[int, int, Tick], np.ndarray]",
    *,
    device: str,
    unit: str,
    progress: Progress,
    workers: int = 0,
    numbers: Iterable[int] | None = None,
) -> None:
    """Writes the shards of `of` that `folder` lacks, each the rows make(first row, row after the last, tick).

    On CPU, `workers` single-threaded forks share the loaded data (0: this process builds all). On GPUs, and where a
    process must not fork, each rank takes the next shard when it is free. `numbers`: only these shards, on all ranks
    the same.
    """
    left = {*missing(folder, of)}
    wanted = by_size(of, range(len(of)) if numbers is None else numbers)
    total = row_count(of, range(len(of)))
    done = total - row_count(of, left)

    def work(number: int, tick: Tick) -> None:
        _save(make(*of[number], tick), folder / name(number))

    if device == "cpu" and workers and host.can_fork():
        import torch

        torch.set_num_threads(1)  # before the first parallel region: OpenMP threads do not survive a fork
        fork(work, [i for i in wanted if i in left], workers, done, total, unit, progress)
        return
    from pipeline.runtime import ranks

    finished = ranks.counter(f"rows of {folder}")
    earlier = done if numbers is None else total - row_count(of, wanted)  # other ranks may have finished some of them

    def tick(count: int) -> None:
        progress(min(earlier + finished(count), total), total, unit)

    for number in ranks.claimed(f"shards of {folder}", wanted):
        if number in left:
            work(number, tick)


def _rows(path: Path) -> int:
    """Returns the number of rows of a shard; -1 if it is damaged, so that it is built again."""
    import numpy as np

    try:
        return len(np.load(path, mmap_mode="r"))
    except (OSError, ValueError, EOFError):
        return -1


def _save(rows: "np.ndarray", path: Path) -> None:
    import numpy as np

    with whole(path) as file:
        np.save(file, rows)


@contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file to write, which appears at `path` once it is complete. Several processes may write the same file."""
    unfinished = path.with_suffix(f".{uuid.uuid4().hex}{PART}")
    try:
        with open(unfinished, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def remove_left_over(folder: Path) -> None:
    """Removes the unfinished files of killed writers.

    A worker on another machine may outlive its run, so the age decides, by the clock of the file system: a shard is
    written in seconds, and a file without a write for an hour has no writer.
    """
    with tempfile.NamedTemporaryFile(dir=folder) as now:
        oldest = os.fstat(now.fileno()).st_mtime - WRITING_SECONDS
    for path in folder.glob(f"*{PART}"):
        with contextlib.suppress(FileNotFoundError):  # its writer has finished it
            if path.stat().st_mtime < oldest:
                path.unlink()


def fork(
    work: Callable[[int, Tick], None],
    numbers: Sequence[int],
    workers: int,
    done: int,
    total: int,
    unit: str,
    progress: Progress,
) -> None:
    """Calls `work(number, tick)` for each number in the next free one of `workers` forks; reports their progress.

    The forks end with this process. Raises the error of a fork: InputError unchanged, any other as RuntimeError with
    its traceback.
    """
    import multiprocessing
    import traceback

    from pipeline.runtime.processes import die_with_parent

    context, parent = multiprocessing.get_context("fork"), os.getpid()
    places = range(min(workers, len(numbers)))
    counts = context.Array("q", max(1, len(places)), lock=False)
    started = context.Value("q", 0)
    errors = context.SimpleQueue()

    def body(place: int) -> None:
        os.environ["PIPELINE_PARENT"] = str(parent)
        die_with_parent()

        def tick(count: int) -> None:
            counts[place] += count

        code = 1
        try:
            while True:
                with started.get_lock():
                    mine = started.value
                    started.value += 1
                if mine >= len(numbers):
                    break
                work(numbers[mine], tick)
            code = 0
        except InputError as error:
            errors.put(error)
        except Exception:
            errors.put(RuntimeError(traceback.format_exc()))
        finally:
            os._exit(code)  # skip the parent's exit handlers, which need its threads

    forks = [context.Process(target=body, args=(place,)) for place in places]
    for one in forks:
        one.start()
    try:
        waiting = forks
        while waiting:
            waiting[0].join(0.5)
            progress(done + sum(counts), total, unit)
            codes = [one.exitcode for one in forks]  # read once for both checks: a fork may end at any moment
            if any(codes):
                raise RuntimeError(f"exit codes {codes} of worker processes") if errors.empty() else errors.get()
            waiting = [one for one, code in zip(forks, codes, strict=True) if code is None]
    finally:
        for one in forks:
            one.terminate()
            one.join()
