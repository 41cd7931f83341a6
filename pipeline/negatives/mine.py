"""Hard negatives: passages ranked high by a retriever and not judged relevant (coCondenser, section 3.3)."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from pipeline.data import barred
from pipeline.data.collection import ROWS, train_positives
from pipeline.data.parquet import parquet_file
from pipeline.data.stored import input_error_on_read, read_batches
from pipeline.errors import InputError
from pipeline.negatives.ranking import QuestionNegatives, Ranking, SamplingConfig, best_place, sample_places
from pipeline.negatives.write import write_negatives
from pipeline.notices import keep
from pipeline.runtime import shards
from pipeline.runtime.spans import shard_spans
from pipeline.runtime.work import Job, Metrics, Progress, Work

QUESTIONS = 10_000
"""Questions in a shard: a few seconds of work."""
BARRED = "barred.npz"
"""File among the shards: the passages that cannot be negatives of the training questions."""


class MineConfig(SamplingConfig):
    depth: int = Field(ge=1)
    """Best ranks of the run that are candidates, including judged passages. 200 (authors' code)."""
    number: int = Field(ge=1)
    """Negatives sampled from the pool of each question. 30 (authors' code)."""
    margin_absolute: float | None = Field(ge=0)
    """Only passages that score at least this much below the question's best judged passage. null: no filter."""
    margin_relative: float | None = Field(gt=0, le=1)
    """The same, as a share of the best judged score's absolute value. null: no filter."""


def mine(config: MineConfig, collection: Path, run: Path, work: Work) -> Metrics:
    """Writes the negatives of the run's training questions (see `write_negatives`).

    Passages that cannot be negatives of a question (pipeline/data/barred.py) are never in its pool. If a margin is set
    and no judged passage of a question was retrieved, the last score of its list is used, an upper bound of theirs;
    with a margin above 0 that question's pool is empty. Questions without a judged passage (in a run for
    pseudo-labels) are skipped.
    Raises InputError for a run without training questions, and if no question has a remaining negative.
    """
    from pipeline.runtime.launch import without_model
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
    if len(spans) == 1:  # faster than starting a process
        sample_pools(progress=work.progress, device="cpu", **arguments, workers=0, numbers=None)
    job = Job("pipeline.negatives.mine:sample_pools", arguments, folder, spans, "questions")
    machine = without_model(work.machine)
    shards.finish(job, work, machine, workers(work.machine))

    sampled = (np.load(folder / shards.name(i), mmap_mode="r") for i in range(len(spans)))  # one open file at a time
    dropped = barred.Dropped()
    dropped.counts["margin"] = 0

    def chosen() -> Iterator[QuestionNegatives]:
        for ranking, record in zip(rankings(path), (record for part in sampled for record in part), strict=True):
            if ranking.query_id in positives:
                if record["margin"]:
                    dropped.counts["margin"] += int(record["margin"])
                    keep(dropped.first, "margin", f"of {ranking.query_id}")
                candidates = ranking.passage_ids[: config.depth]
                dropped.count([ranking.query_id] * len(candidates), candidates, record["reasons"][: len(candidates)])
                yield QuestionNegatives(ranking, record["places"][record["places"] >= 0])

    return write_negatives(
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
    """Writes the missing shards to `folder`: one record for each of `size` training questions of the run.

    `places`: places of its negatives in its ranking, then -1; `margin`: number of candidates that a margin drops;
    `reasons`: of the first `depth` candidates (see `barred.reasons`), then FREE.
    """
    settings = MineConfig(**config)
    positives = train_positives(Path(collection))
    rule = read_rule(Path(folder), Path(collection))
    first_Q = np.load(Path(folder, "first.npy"))
    record = np.dtype(
        [("places", np.int32, (settings.number,)), ("margin", np.int32), ("reasons", np.int8, (settings.depth,))]
    )

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        records = np.zeros(stop - start, record)
        records["places"], records["reasons"] = -1, barred.FREE
        for i, ranking in enumerate(rankings(Path(run, "run.parquet"), first_Q[start], first_Q[stop])):
            if ranking.query_id in positives:
                reason_N = rule.of(ranking.query_id, ranking.passage_ids[: settings.depth])
                places, records["margin"][i] = pool(ranking, positives[ranking.query_id], reason_N, settings)
                taken = sample_places(places, settings.number, settings.seed, ranking.query_id)
                records["places"][i, : len(taken)] = taken
                records["reasons"][i, : len(reason_N)] = reason_N
            tick(1)
        return records

    spans = shard_spans(len(first_Q) - 1, size)
    shards.build_shards(
        Path(folder), spans, make, device=device, unit="questions", progress=progress, workers=workers, numbers=numbers
    )
    return {}


def read_rule(folder: Path, collection: Path) -> barred.ById:
    """Reads the file BARRED."""
    with np.load(folder / BARRED) as arrays:
        return barred.by_id(collection, barred.Barred(**arrays))


def first_rows(path: Path) -> np.ndarray:
    """Returns the first row of each training question of a run, and the row after the last one's, int64 [Q + 1]."""
    import pyarrow.compute as pc

    firsts, row, last, end = [], 0, None, 0
    for batch in read_batches(path, ["split", "query_id"], ROWS):
        row_T = np.flatnonzero(pc.equal(batch["split"], "train"))
        query_T = batch["query_id"].take(row_T)
        if len(query_T):
            is_first_new = query_T[0].as_py() != last
            new_T = np.r_[is_first_new, pc.not_equal(query_T[1:], query_T[:-1]).to_numpy(zero_copy_only=False)]
            firsts.append(row + row_T[new_T])
            last, end = query_T[-1].as_py(), row + int(row_T[-1]) + 1
        row += len(batch)
    return np.concatenate([*firsts, [end]]).astype(np.int64)


def rankings(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Ranking]:
    """Yields the training questions of a run (of its rows from `start` to before `stop`), one at a time.

    Memory: a row group.
    """
    import pyarrow.compute as pc

    last: Ranking | None = None  # its rows may continue in the next batch
    with input_error_on_read(path), parquet_file(path) as file:
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
    """Returns (places of possible negatives, number that a margin drops). `reason_N`: of the first candidates."""
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
    """Returns the highest score of a negative for a positive with score `positive`; None: any."""
    limits = []
    if absolute is not None:
        limits.append(positive - absolute)
    if relative is not None:
        limits.append(positive - relative * abs(positive))
    return min(limits, default=None)
