"""Exact search where the vectors do not fit into one GPU: the passages are cut into slices, which the ranks share.

1. The question vectors are written batch by batch, so that all slices are searched with the same bytes.
2. Each rank copies a slice to its GPU and searches it for the batches that no other rank has taken; then it continues
   with the next slice. The ranks begin at different slices, so that together they hold as many as they can.
3. The lists of all slices are merged: the best passages of all are among the best of each slice.

The files of each step are shards (pipeline/runtime/shards.py), so a kill loses only the unfinished ones.

Shapes: Q questions, N passages, D dimension, K passages of a list.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic

import numpy as np

from pipeline.dense.exact import exact_top_k
from pipeline.dense.exact_gpu import load
from pipeline.dense.list_records import records
from pipeline.dense.rescore import best_k
from pipeline.runtime import ranks, shards
from pipeline.runtime.spans import Span, shard_spans
from pipeline.runtime.work import Progress, silent

PARTIAL = "partial"
"""Folder within that of the lists, for question vectors and the lists of each slice."""
LEAST = 1 << 29
"""Bytes of a slice where a GPU has less room: many slices would need many files."""
HALF = 2
"""Bytes of a float16, which an index of this program has stored. Others are searched by the processor."""
MERGED = 1024
"""Questions whose lists are merged at a time."""

UNIT = "questions"
Make = Callable[[int, int, shards.Tick], np.ndarray]


@dataclass(frozen=True)
class Batches:
    """The questions of a search, batch by batch."""

    spans: Sequence[Span]
    numbers: Sequence[int]
    """The batches to search: the same on all ranks."""
    encode: Callable[[int, int], np.ndarray]
    """encode(start, stop) returns the vectors of these questions, [Q, D]."""
    depth: Callable[[int], int]
    """depth(start): passages of a list, for the batch that begins at question `start`."""

    @property
    def questions(self) -> int:
        """The number of all questions."""
        return shards.row_count(self.spans, range(len(self.spans)))

    def file(self, folder: Path, start: int) -> Path:
        """Returns the shard in `folder` of the batch that begins at `start`."""
        return folder / shards.name([first for first, _ in self.spans].index(start))


def build_lists(
    folder: Path,
    batches: Batches,
    vectors_ND: np.ndarray,
    longest: float,
    *,
    device: str,
    room: int,
    progress: Progress,
) -> None:
    """Writes the missing lists of `batches` to `folder`; until all exist, its folder PARTIAL holds the files of before.

    `longest`: see `exact_top_k`; `room`: bytes that each rank's device has for vectors, the same on all ranks.
    """
    slices = slice_spans(vectors_ND, room)
    questions = folder / PARTIAL / "questions"
    parts = [folder / PARTIAL / f"slice-{i}-of-{len(slices)}" for i in range(len(slices))]
    for one in (questions, *parts):
        one.mkdir(parents=True, exist_ok=True)
        shards.remove_left_over(one)
    tick = _counted(batches, parts, progress)

    def build(target: Path, make: Make, report: Progress = silent) -> None:
        shards.build_shards(
            target, batches.spans, make, device=device, unit=UNIT, progress=report, numbers=batches.numbers
        )

    build(questions, lambda start, stop, _: batches.encode(start, stop))
    ranks.meet()  # all question vectors exist; and no rank counts a list of this run as one of an earlier run
    for i in turns(len(slices), ranks.rank(), ranks.world()):
        build(parts[i], _searcher(slices[i], questions, batches, vectors_ND, longest, device, room, tick))
    ranks.meet()  # the lists of all slices exist
    build(folder, _merger(parts, batches), _last_share(len(parts), progress))
    ranks.meet()
    if ranks.rank() == 0 and not shards.missing(folder, batches.spans):  # of a Ray cluster's parts, only the last one
        shutil.rmtree(folder / PARTIAL, ignore_errors=True)


def slice_spans(vectors_ND: np.ndarray, room: int) -> list[Span]:
    """Returns slices of about equally many passages that fit into `room` bytes as float16."""
    most = max(1, room // (vectors_ND.shape[1] * HALF))
    number = -(-len(vectors_ND) // most)
    return shard_spans(len(vectors_ND), -(-len(vectors_ND) // number))


def turns(slices: int, rank: int, world: int) -> list[int]:
    """Returns the order in which a rank searches the slices: first its own ones, then those of the next ranks."""
    first = rank * slices // world
    return [*range(first, slices), *range(first)]


def _counted(batches: Batches, parts: Sequence[Path], progress: Progress) -> shards.Tick:
    """Returns a function that counts the questions that all ranks have searched in a slice, and reports them.

    Of a question's work each slice is a share, and merging is one more.
    """
    missing = [{*batches.numbers}.intersection(shards.missing(part, batches.spans)) for part in parts]
    most = len(parts) * batches.questions
    earlier = most - sum(shards.row_count(batches.spans, numbers) for numbers in missing)
    searched = ranks.counter(f"questions of the slices {parts[0]}")

    def tick(count: int) -> None:
        progress(min(earlier + searched(count), most) // (len(parts) + 1), batches.questions, UNIT)

    return tick


def _last_share(parts: int, progress: Progress) -> Progress:
    """Returns the progress of merging, as a part of the whole (see `_counted`)."""

    def merging(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        progress((parts * (total or 0) + done) // (parts + 1), total, unit, numbers)

    return merging


def _searcher(
    passages: Span,
    questions: Path,
    batches: Batches,
    vectors_ND: np.ndarray,
    longest: float,
    device: str,
    room: int,
    tick: shards.Tick,
) -> Make:
    """Returns a function that searches a slice for a batch. The first call copies the slice to the device.

    The processor searches a slice that needs float32 and more than `room` bytes for it.
    """
    first, after = passages
    part_ND = vectors_ND[first:after]
    copied = cache(lambda: load(part_ND, device, room))

    def make(start: int, stop: int, _: shards.Tick) -> np.ndarray:
        questions_QD, on_gpu = np.load(batches.file(questions, start)), copied()
        started_at = monotonic()
        rows_QK, scores_QK = exact_top_k(questions_QD, part_ND, batches.depth(start), longest, on_gpu=on_gpu)
        lists = records((rows_QK + first, scores_QK), monotonic() - started_at, 0)
        tick(stop - start)
        return lists

    return make


def _merger(parts: Sequence[Path], batches: Batches) -> Make:
    """Returns a function that merges the lists of a batch."""

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        lists = merged([np.load(batches.file(part, start), mmap_mode="r") for part in parts], batches.depth(start))
        tick(stop - start)
        return lists

    return make


def merged(parts: Sequence[np.ndarray], k: int) -> np.ndarray:
    """Returns the best k passages of each question among the lists of all slices, by score, then passage order.

    `parts`: the records (list_records.py) of the same questions in each slice. Memory: the result, and few questions.
    """
    groups = []
    for start in range(0, len(parts[0]), MERGED):
        some = [part[start : start + MERGED] for part in parts]
        rows_QC, scores_QC = (np.concatenate([part[field] for part in some], 1) for field in ("rows", "scores"))
        groups.append(best_k(rows_QC, scores_QC, k))
    rows_QK, scores_QK = (np.concatenate(arrays) for arrays in zip(*groups, strict=True))
    return records((rows_QK, scores_QK), sum(float(part["seconds"].sum()) for part in parts), 0)
