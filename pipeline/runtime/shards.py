"""Long work in shards that are finished one by one, so that a kill loses those under way alone.

Which process makes a shard, on which machine and when, changes no byte of it.
"""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pipeline.errors import InputError
from pipeline.runtime.spans import Span
from pipeline.runtime.work import Job, Machine, Progress, Work

if TYPE_CHECKING:
    import numpy as np

PART = ".part"
"""Ending of a file that is being written."""
WRITING_SECONDS = 3600
"""Without a write, after which such a file has no writer any more."""
Tick = Callable[[int], None]
"""Told how many rows are finished."""


def finish(job: Job, work: Work, machine: Machine, workers: int) -> None:
    """Make what is missing: where `work.elsewhere` says, else on this one, in child processes as `machine` has them."""
    from pipeline.runtime.launch import ENCODING, launch

    if not missing(job.folder, job.spans):
        return
    remove_left_over(job.folder)
    if work.elsewhere is not None:
        work.elsewhere(job, machine)
        return
    # The same list for all ranks: what one of them has finished meanwhile must not change the others' shares.
    arguments = {**job.arguments, "workers": workers, "numbers": missing(job.folder, job.spans)}
    launch(job.function, arguments, machine, work.progress, work.checkpoints, ENCODING)


def name(number: int) -> str:
    """File name of a shard."""
    return f"shard-{number:05d}.npy"


def row_count(of: Sequence[Span], numbers: Iterable[int]) -> int:
    """Rows of the shards `numbers` together."""
    return sum(of[i][1] - of[i][0] for i in numbers)


def present(folder: Path, of: Sequence[Span]) -> list[int]:
    """Numbers of the shards that have a file."""
    there = {entry.name for entry in os.scandir(folder)}  # a listing, which a network's file system asks again for
    return [i for i in range(len(of)) if name(i) in there]


def missing(folder: Path, of: Sequence[Span]) -> list[int]:
    """Numbers of the shards that are not finished, the largest first."""
    finished = {i for i in present(folder, of) if _rows(folder / name(i)) == row_count(of, [i])}
    return by_size(of, [i for i in range(len(of)) if i not in finished])


def by_size(of: Sequence[Span], numbers: Iterable[int]) -> list[int]:
    """The largest shards first: one that is begun last is waited for."""
    return sorted(numbers, key=lambda i: (-row_count(of, [i]), i))


def build(
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
    """Write what `folder` still lacks of the shards `of`, each the rows make(first row, row after the last, tick).

    On CPU `workers` single-threaded forks share what is loaded (0: this process makes all); on GPUs each rank takes
    its part. `numbers`: of these shards alone.
    """
    left = {*missing(folder, of)}
    wanted = by_size(of, range(len(of)) if numbers is None else numbers)
    total = row_count(of, range(len(of)))
    done = total - row_count(of, left)

    def work(number: int, tick: Tick) -> None:
        _save(make(*of[number], tick), folder / name(number))

    if device == "cpu" and workers:
        import torch

        torch.set_num_threads(1)  # before the first parallel region: OpenMP's threads do not survive a fork
        fork(work, [i for i in wanted if i in left], workers, done, total, unit, progress)
        return
    place, ranks = _place(device)
    finished = done

    def tick(count: int) -> None:
        nonlocal finished
        finished += count * ranks
        progress(min(finished, total), total, unit)

    for number in wanted[place::ranks]:
        if number in left:
            work(number, tick)


def _place(device: str) -> tuple[int, int]:
    """(number of this rank, ranks)."""
    if device == "cpu":
        return 0, 1
    from pipeline.runtime.ranks import rank, world

    return rank(), world()


def _rows(path: Path) -> int:
    """-1: it is damaged, and will be made again."""
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
    """A file to write, which is at `path` once it is complete. Several processes may write the same."""
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
    """Remove what killed writers have left unfinished.

    A worker on another machine may outlive the run that it writes for, so that age decides, by the clock of the file
    system: a shard is written in seconds, and a file that nobody has written to for an hour has no writer.
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
    """Call `work(number, tick)` for each number in one of `workers` forks, whichever is free; report their progress.

    All end with this one. Raises what a fork raised: InputError as such, anything else as RuntimeError with its
    traceback.
    """
    import multiprocessing
    import traceback

    from pipeline.runtime.processes import die_with_parent

    context, parent = multiprocessing.get_context("fork"), os.getpid()
    places = range(min(workers, len(numbers)))
    counts = context.Array("q", max(1, len(places)), lock=False)
    begun = context.Value("q", 0)
    errors = context.SimpleQueue()

    def body(place: int) -> None:
        os.environ["PIPELINE_PARENT"] = str(parent)
        die_with_parent()

        def tick(count: int) -> None:
            counts[place] += count

        code = 1
        try:
            while True:
                with begun.get_lock():
                    mine = begun.value
                    begun.value += 1
                if mine >= len(numbers):
                    break
                work(numbers[mine], tick)
            code = 0
        except InputError as error:
            errors.put(error)
        except Exception:
            errors.put(RuntimeError(traceback.format_exc()))
        finally:
            os._exit(code)  # what the parent does at its exit, and its threads would have to do, is not a fork's

    forks = [context.Process(target=body, args=(place,)) for place in places]
    for one in forks:
        one.start()
    try:
        waiting = forks
        while waiting:
            waiting[0].join(0.5)
            progress(done + sum(counts), total, unit)
            codes = [one.exitcode for one in forks]  # one look for both questions: a fork may end at any moment
            if any(codes):
                raise RuntimeError(f"exit codes {codes} of worker processes") if errors.empty() else errors.get()
            waiting = [one for one, code in zip(forks, codes, strict=True) if code is None]
    finally:
        for one in forks:
            one.terminate()
            one.join()
