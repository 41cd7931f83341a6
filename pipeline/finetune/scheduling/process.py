"""The process that schedules the next epoch's batches during training.

`python -m pipeline.finetune.scheduling.process FOLDER`.

FOLDER holds the epoch's similarity, written by the training before it starts the process:

    questions.npy, passages.npy   vectors of the N pairs, [N, D]; similarity is their inner product
    candidates.npz                or candidate lists: question, passage (numbers of pairs), score, all [R]
    judged.npy                    optional, [E, 2]: the passage of the second pair is judged relevant for the first's
                                  question, or is not a negative of it (pipeline/data/barred.py), so it does not count
                                  as hard (own pairs need not be listed)

The process adds job.json, then batches.i32 (each finished batch is appended) and hardness.json. The batches depend on
nothing else, so a training that resumes from the same folder gets the same batches, finished ones immediately. Write
the folder under a temporary name and rename it when it is complete.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from pipeline.errors import InputError
from pipeline.runtime.processes import (
    die_with_parent,
    end_child,
    ending,
    environment,
    python,
    report_errors,
    reporter,
    start_child,
)

DENSE = 10_000
"""Pairs up to which greedy search over vectors uses all similarities (1 GB while they are built); above it, lists."""
POLL = 0.01
"""Seconds between two checks for the next batch."""
QUESTIONS, PASSAGES, CANDIDATES, JUDGED = "questions.npy", "passages.npy", "candidates.npz", "judged.npy"
JOB, BATCHES, HARDNESS = "job.json", "batches.i32", "hardness.json"


@dataclass(frozen=True)
class ScheduleJob:
    method: Literal["greedy", "beam"]
    sizes: Sequence[int]
    """Pairs of each batch; together all N."""
    seed: int
    epoch: int
    width: int
    """Of beam search: `width` x `width` swaps are compared."""
    depth: int
    """Length of candidate lists: each question's best passages, each passage's best questions. 100 (ABS)."""
    pool: int | None
    """Pairs that are scheduled together at most, a random part of the epoch: less memory, and the first batches are
    ready sooner. None: all."""
    device: str = "cpu"
    """Of the training; candidate lists are computed there."""


@contextlib.contextmanager
def scheduled(folder: Path, job: ScheduleJob) -> Iterator[Iterator[np.ndarray]]:
    """Runs the process: `with scheduled(folder, job) as batches: for batch in batches: ...`, in training order.

    A batch is int64 numbers of pairs, ascending. The iterator waits for the next one. The process ends with the `with`,
    and with the calling thread. Raises InputError for files that do not fit the job. The iterator raises the process's
    error: InputError unchanged, any other (also a kill) as RuntimeError.
    """
    _prepare(folder, job)
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        child = start_child(
            python("pipeline.finetune.scheduling.process", str(folder.resolve())),
            {**environment(), "OMP_NUM_THREADS": "1"},
            stderr,
        )
        try:
            yield _read(folder / BATCHES, job.sizes, child, stderr)
        finally:
            end_child(child)


def hardness(folder: Path) -> dict[str, float]:
    """Returns the `scheduled` and `random` hardness of the epoch; available when the iterator has ended."""
    return json.loads((folder / HARDNESS).read_text())


def _prepare(folder: Path, job: ScheduleJob) -> None:
    """Checks the files, writes the job, and keeps the complete batches of an interrupted call."""
    pairs = sum(job.sizes)
    if not (folder / CANDIDATES).exists():
        for name in (QUESTIONS, PASSAGES):
            vectors = len(np.load(folder / name, mmap_mode="r"))
            if vectors != pairs:
                raise InputError(f"{folder / name}: {vectors} vectors, but the epoch's batches have {pairs} pairs")
    text = json.dumps(asdict(job))
    if not (folder / JOB).exists() or (folder / JOB).read_text() != text:
        (folder / BATCHES).unlink(missing_ok=True)
        (folder / JOB).write_text(text)
    (folder / HARDNESS).unlink(missing_ok=True)
    (folder / BATCHES).touch()
    batches = _complete_batches(folder / BATCHES, job.sizes)
    os.truncate(folder / BATCHES, 4 * sum(len(batch) for batch in batches))


def _complete_batches(path: Path, sizes: Sequence[int]) -> list[np.ndarray]:
    """Returns the complete batches of the file; none if its content is damaged (a machine lost power)."""
    flat, edges = np.fromfile(path, "<i4", path.stat().st_size // 4).astype(np.int64), np.cumsum(sizes)
    complete = int(np.searchsorted(edges, len(flat), "right"))
    pairs = flat[: edges[complete - 1] if complete else 0]
    if len(np.unique(pairs)) < len(pairs) or (len(pairs) and pairs.max() >= edges[-1]):
        return []
    return np.split(pairs, edges[: complete - 1]) if complete else []


def _read(path: Path, sizes: Sequence[int], child: subprocess.Popen[str], stderr: IO[str]) -> Iterator[np.ndarray]:
    end = 0
    for size in sizes:
        start, end = end, end + 4 * size
        while path.stat().st_size < end:
            if child.poll() is not None and path.stat().st_size < end:
                _fail(child, stderr)
            time.sleep(POLL)
        yield np.fromfile(path, "<i4", size, offset=start).astype(np.int64)
    if child.wait():  # hardness.json comes last
        _fail(child, stderr)


def _fail(child: subprocess.Popen[str], stderr: IO[str]) -> None:
    assert child.stdout is not None
    reply = json.loads(child.stdout.readline() or "{}")
    if "input_error" in reply:
        raise InputError(reply["input_error"])
    stderr.seek(0)
    text = reply.get("error") or "".join(stderr.readlines()[-30:])
    raise RuntimeError(f"the process that schedules batches failed, {ending(child.returncode)}:\n{text}".rstrip())


def search_batches(folder: Path) -> None:
    """Searches the missing batches of `folder`. Memory: see `DENSE`; 1.3 GB for 100,000 pairs with lists of 100."""
    from pipeline.finetune.scheduling import batch_search as scheduling

    job = ScheduleJob(**json.loads((folder / JOB).read_text()))
    improve = scheduling.greedy if job.method == "greedy" else scheduling.beam(job.width)
    found = _complete_batches(folder / BATCHES, job.sizes) if (folder / BATCHES).exists() else []
    edges, sums = np.cumsum([0, *job.sizes]), {"scheduled": 0.0, "random": 0.0}
    order_N = np.random.default_rng([job.seed, job.epoch, 1]).permutation(edges[-1])
    with open(folder / BATCHES, "ab", buffering=0) as file:  # a finished batch can be read immediately
        for first, last in pools(job.sizes, job.pool):
            members = np.sort(order_N[edges[first] : edges[last]])
            known = [np.searchsorted(members, batch) for batch in found[first:last]]
            similarity = read_similarity(folder, members, edges[-1], job)
            search = scheduling.schedule(similarity, job.sizes[first:last], job.seed, job.epoch, improve, known)
            for number in range(first, last):
                batch = members[next(search)]
                if number >= len(found):
                    file.write(batch.astype("<i4").tobytes())
            try:
                next(search)
            except StopIteration as end:
                for name, value in end.value._asdict().items():
                    sums[name] += value
    (folder / HARDNESS).write_text(json.dumps(sums) + "\n")


def pools(sizes: Sequence[int], most: int | None) -> list[tuple[int, int]]:
    """Returns ranges (first, last + 1) of batches of at most `most` pairs (None: all), or of one larger batch."""
    firsts, total = [0], 0
    for number, size in enumerate(sizes):
        if most is not None and total and total + size > most:
            firsts.append(number)
            total = 0
        total += size
    return list(zip(firsts, [*firsts[1:], len(sizes)], strict=True))


def read_similarity(folder: Path, members: np.ndarray, n: int, job: ScheduleJob):
    """Reads the similarities between `members` (ascending) of the `n` pairs from the folder's files."""
    from pipeline.finetune.scheduling import similarity

    judged_E2 = np.load(folder / JUDGED) if (folder / JUDGED).exists() else np.zeros((0, 2), np.int64)
    _check_numbers(folder / JUDGED, judged_E2, n)
    judged = similarity.within((judged_E2[:, 0], judged_E2[:, 1], np.zeros(len(judged_E2))), members, n)
    judged_E2 = np.stack(judged[:2], axis=1)
    if (folder / CANDIDATES).exists():
        with np.load(folder / CANDIDATES) as file:
            candidates = file["question"], file["passage"], file["score"]
        _check_numbers(folder / CANDIDATES, np.concatenate(candidates[:2]), n)
        rows = similarity.best_rows(similarity.within(candidates, members, n), job.depth)
        del candidates
    else:
        questions_ND, passages_ND = (_vectors(folder / name, members, n) for name in (QUESTIONS, PASSAGES))
        if job.method == "greedy" and len(members) <= DENSE:
            return similarity.dense(questions_ND @ passages_ND.T, judged_E2)
        rows = similarity.nearest_neighbours(questions_ND, passages_ND, job.depth, job.device)
        del questions_ND, passages_ND
    return similarity.sparse(rows, len(members), judged_E2)


def _check_numbers(path: Path, pairs: np.ndarray, n: int) -> None:
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < n:
        raise InputError(f"{path}: pairs {pairs.min()} to {pairs.max()}, but the epoch's batches have {n} pairs")


def _vectors(path: Path, members: np.ndarray, n: int) -> np.ndarray:
    """Reads vectors of `members`, float32, contiguous; without a copy if `members` are all."""
    vectors_ND = np.load(path, mmap_mode="r")
    return np.ascontiguousarray(vectors_ND if len(members) == n else vectors_ND[members], np.float32)


def main() -> None:
    die_with_parent()
    with report_errors(reporter()):
        search_batches(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
