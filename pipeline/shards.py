"""Long work in shards that are finished one by one, so that a kill loses those under way alone."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import InputError
from pipeline.work import Progress

if TYPE_CHECKING:
    import numpy as np

Tick = Callable[[int], None]
"""Told how many rows are finished."""


def name(number: int) -> str:
    """File name of a shard."""
    return f"shard-{number:05d}.npy"


def spans(rows: int, size: int) -> list[tuple[int, int]]:
    """(first row, row after the last) of each shard of `size` rows."""
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def build(
    folder: Path,
    of: list[tuple[int, int]],
    make: "Callable[[int, int, Tick], np.ndarray]",
    device: str,
    workers: int,
    unit: str,
    progress: Progress,
) -> None:
    """Write what `folder` still lacks of the shards `of`, each the rows make(first row, row after the last, tick).

    On CPU `workers` single-threaded forks share what is loaded; on GPUs each rank takes its part.
    """
    import torch

    from pipeline.distributed import rank, world

    total = of[-1][1] if of else 0
    todo = [i for i, (start, stop) in enumerate(of) if not _finished(folder / name(i), stop - start)]
    done = total - sum(of[i][1] - of[i][0] for i in todo)

    def work(numbers: list[int], tick: Tick) -> None:
        for number in numbers:
            _save(make(*of[number], tick), folder / name(number))

    if device == "cpu":
        torch.set_num_threads(1)  # before the first parallel region: OpenMP's threads do not survive a fork
        fork(work, [todo[i::workers] for i in range(min(workers, len(todo)))], done, total, unit, progress)
        return
    finished = done

    def tick(count: int) -> None:
        nonlocal finished
        finished += count * world()
        progress(min(finished, total), total, unit)

    work(todo[rank() :: world()], tick)


def _finished(path: Path, rows: int) -> bool:
    import numpy as np

    return path.is_file() and len(np.load(path, mmap_mode="r")) == rows


def _save(rows: "np.ndarray", path: Path) -> None:
    import numpy as np

    unfinished = path.with_suffix(".part")
    with open(unfinished, "wb") as file:
        np.save(file, rows)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)


def fork(
    work: Callable[[list[int], Tick], None],
    shares: list[list[int]],
    done: int,
    total: int,
    unit: str,
    progress: Progress,
) -> None:
    """Run `work(share, tick)` for each share in a fork of its own and report their progress; all end with this one.

    Raises what a fork raised: InputError as such, anything else as RuntimeError with its traceback.
    """
    import multiprocessing
    import traceback

    from pipeline.parent import die_with_parent

    context, parent = multiprocessing.get_context("fork"), os.getpid()
    counts = context.Array("q", max(1, len(shares)), lock=False)
    errors = context.SimpleQueue()

    def body(place: int) -> None:
        os.environ["PIPELINE_PARENT"] = str(parent)
        die_with_parent()

        def tick(count: int) -> None:
            counts[place] += count

        code = 1
        try:
            work(shares[place], tick)
            code = 0
        except InputError as error:
            errors.put(error)
        except Exception:
            errors.put(RuntimeError(traceback.format_exc()))
        finally:
            os._exit(code)  # what the parent does at its exit, and its threads would have to do, is not a fork's

    forks = [context.Process(target=body, args=(place,)) for place in range(len(shares))]
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
