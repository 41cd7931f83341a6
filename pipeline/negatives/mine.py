"""Hard negatives: what a trained retriever ranks high and nobody judged relevant (coCondenser, section 3.3)."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.data import barred
from pipeline.data.collection import ROWS, train_positives
from pipeline.data.parquet import parquet_file
from pipeline.data.stored import read_batches, told
from pipeline.errors import InputError
from pipeline.negatives.ranking import Ranking, Taken, best_place, sample
from pipeline.negatives.write import write
from pipeline.notices import keep
from pipeline.runtime import shards
from pipeline.runtime.spans import shard_spans
from pipeline.runtime.work import Job, Metrics, Progress, Work

QUESTIONS = 10_000
"""In a shard: some seconds of work."""
BARRED = "barred.npz"
"""Among the shards: what is barred of the training questions."""


class MineConfig(Config):
    depth: int = Field(ge=1)
    """Best ranks of the run that are looked at, judged passages included. 200 (authors' code)."""
    number: int = Field(ge=1)
    """Negatives sampled from the pool of each question. 30 (authors' code)."""
    margin_absolute: float | None = Field(ge=0)
    """Only passages that score at least this much below the question's best judged passage. None: no such filter."""
    margin_relative: float | None = Field(gt=0, le=1)
    """Only passages that score at least this share of the best judged score's size below it. None: no such filter."""
    seed: Seed
    """Seed of the sampling, and of the questions on the page."""
    page_questions: int = Field(ge=0)
    """Random questions on `negatives.html`, for the user's eyes. 0: no page."""


def mine(config: MineConfig, collection: Path, run: Path, work: Work) -> Metrics:
    """Write the negatives of the training questions of the run (see `negatives.write`).

    What is no negative of a question (pipeline/data/barred.py) is never in its pool. Where a margin is set and none
    of a question's judged passages was retrieved, the last score of its list, which theirs cannot exceed, stands for
    theirs; with a margin above 0 that question's pool is empty. Questions without a judged passage, which a run holds
    for pseudo-labels, are passed by.
    Raises InputError for a run without training questions, and where no question has a negative left.
    """
    from pipeline.runtime.processes import workers

    path, folder = run / "run.parquet", work.checkpoints / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    first_Q = first_rows(path)
    if len(first_Q) == 1:
        raise InputError(f"{path}: no training questions; mining needs `train` among search.splits")
    with shards.whole(folder / "first.npy") as file:
        np.save(file, first_Q)
    positives = train_positives(collection)
    if not (folder / BARRED).exists():
        with shards.whole(folder / BARRED) as file:
            np.savez(file, **barred.of_training(collection)._asdict())
    spans = shard_spans(len(first_Q) - 1, QUESTIONS)
    arguments: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "collection": str(collection),
        "run": str(run),
        "folder": str(folder),
        "size": QUESTIONS,
    }
    if len(spans) == 1:  # quicker than to start a process
        sample_pools(progress=work.progress, device="cpu", **arguments, workers=0, numbers=None)
    job = Job("pipeline.negatives.mine:sample_pools", arguments, folder, spans, "questions")
    machine = work.machine.model_copy(update={"device": "cpu", "ranks": 1, "threads": 1, "torchrun": []})
    shards.finish(job, work, machine, workers(work.machine))

    sampled = [np.load(folder / shards.name(i), mmap_mode="r") for i in range(len(spans))]
    dropped = barred.Dropped()
    dropped.counts["margin"] = 0

    def chosen() -> Iterator[Taken]:
        for ranking, record in zip(rankings(path), (record for part in sampled for record in part), strict=True):
            if ranking.query_id in positives:
                if record["margin"]:
                    dropped.counts["margin"] += int(record["margin"])
                    keep(dropped.first, "margin", f"of {ranking.query_id}")
                looked_at = ranking.passage_ids[: config.depth]
                dropped.count([ranking.query_id] * len(looked_at), looked_at, record["reasons"][: len(looked_at)])
                yield Taken(ranking, record["places"][record["places"] >= 0])

    return write(
        chosen(),
        dropped,
        config,
        source="mined",
        expected=("judged",),
        positives=positives,
        collection=collection,
        work=work,
    )


def sample_pools(
    *,
    progress: Progress,
    device: str,
    config: dict,
    collection: str,
    run: str,
    folder: str,
    size: int,
    workers: int,
    numbers: list[int] | None,
) -> dict:
    """Write what `folder` still lacks of the shards of `size` training questions of the run: a record a question.

    `places`: of its negatives in its ranking, then -1; `margin`: how many candidates a margin drops; `reasons`: of the
    first `depth` candidates (see `barred.reasons`), then FREE.
    """
    settings = MineConfig(**config)
    positives = train_positives(Path(collection))
    rule = read_rule(Path(folder), Path(collection))
    first_Q = np.load(Path(folder, "first.npy"))
    record = np.dtype(
        [("places", np.int32, (settings.number,)), ("margin", np.int32), ("reasons", np.int8, (settings.depth,))]
    )

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        made = np.zeros(stop - start, record)
        made["places"], made["reasons"] = -1, barred.FREE
        for i, ranking in enumerate(rankings(Path(run, "run.parquet"), first_Q[start], first_Q[stop])):
            if ranking.query_id in positives:
                reason_N = rule.of(ranking.query_id, ranking.passage_ids[: settings.depth])
                places, made["margin"][i] = pool(ranking, positives[ranking.query_id], reason_N, settings)
                taken = sample(places, settings.number, settings.seed, ranking.query_id)
                made["places"][i, : len(taken)] = taken
                made["reasons"][i, : len(reason_N)] = reason_N
            tick(1)
        return made

    spans = shard_spans(len(first_Q) - 1, size)
    shards.build(
        Path(folder), spans, make, device=device, unit="questions", progress=progress, workers=workers, numbers=numbers
    )
    return {}


def read_rule(folder: Path, collection: Path) -> barred.ById:
    """Of the file BARRED."""
    with np.load(folder / BARRED) as arrays:
        return barred.by_id(collection, barred.Barred(**arrays))


def first_rows(path: Path) -> np.ndarray:
    """The first row in a run of each of its training questions, and the row behind the last one's. int64 [Q + 1]."""
    import pyarrow.compute as pc

    found, row, last, end = [], 0, None, 0
    for batch in read_batches(path, ["split", "query_id"], ROWS):
        row_T = np.flatnonzero(pc.equal(batch["split"], "train"))
        query_T = batch["query_id"].take(row_T)
        if len(query_T):
            other = query_T[0].as_py() != last
            new_T = np.r_[other, pc.not_equal(query_T[1:], query_T[:-1]).to_numpy(zero_copy_only=False)]
            found.append(row + row_T[new_T])
            last, end = query_T[-1].as_py(), row + int(row_T[-1]) + 1
        row += len(batch)
    return np.concatenate([*found, [end]]).astype(np.int64)


def rankings(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Ranking]:
    """The training questions of a run (of its rows from `start` to before `stop`), one at a time.

    Memory: a row group.
    """
    import pyarrow.compute as pc

    last: Ranking | None = None  # its rows may go on in the next batch
    with told(path), parquet_file(path) as file:
        edges = np.cumsum([0, *(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))])
        stop = int(edges[-1]) if stop is None else stop
        groups = np.flatnonzero((edges[1:] > start) & (edges[:-1] < stop)).tolist()
        row = int(edges[groups[0]]) if groups else 0
        for batch in file.iter_batches(row_groups=groups, columns=["split", "query_id", "passage_id", "score"]):
            low, high = np.clip([start - row, stop - row], 0, len(batch)).tolist()
            row += len(batch)
            inside = batch.slice(low, high - low)
            rows = inside.filter(pc.equal(inside["split"], "train"))
            query, passages, scores = rows["query_id"], rows["passage_id"].to_pylist(), rows["score"].to_numpy()
            changes = np.flatnonzero(pc.not_equal(query[1:], query[:-1])) + 1
            for begin, end in pairwise([0, *changes.tolist(), len(rows)] if len(rows) else []):
                part = Ranking(query[begin].as_py(), passages[begin:end], scores[begin:end])
                if last is not None and last.query_id == part.query_id:
                    both = np.concatenate([last.scores, part.scores])
                    part = Ranking(part.query_id, last.passage_ids + part.passage_ids, both)
                elif last is not None:
                    yield last
                last = part
    if last is not None:
        yield last


def pool(ranking: Ranking, judged: Iterable[str], reason_N: np.ndarray, config: MineConfig) -> tuple[np.ndarray, int]:
    """(places in the ranking that may be negatives, how many a margin drops); `reason_N`: of the first ones."""
    places = barred.free(reason_N)
    best = best_place(ranking, judged)
    reference = ranking.scores[-1 if best is None else best]
    limit = ceiling(float(reference), config.margin_absolute, config.margin_relative)
    kept = np.array(places, dtype=np.int64)
    if limit is None:
        return kept, 0
    below = ranking.scores[kept] <= limit
    return kept[below], int((~below).sum())


def ceiling(positive: float, absolute: float | None, relative: float | None) -> float | None:
    """Highest score that a negative may have beside a positive's score; None: any."""
    limits = []
    if absolute is not None:
        limits.append(positive - absolute)
    if relative is not None:
        limits.append(positive - relative * abs(positive))
    return min(limits, default=None)
