"""Hard negatives: what a trained retriever ranks high and nobody judged relevant (coCondenser, section 3.3)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.errors import InputError
from pipeline.negatives import Ranking, best_place, duplicates, free, train_positives, write
from pipeline.work import Metrics, Work


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

    Neither a judged passage nor one with exactly a positive's text is ever in a pool. Where a margin is set and none
    of a question's judged passages was retrieved, the last score of its list, which theirs cannot exceed, stands for
    theirs; with a margin above 0 that question's pool is empty. Questions without a judged passage, which a run holds
    for pseudo-labels, are passed by.
    Raises InputError for a run without training questions, and where no question has a negative left.
    """
    positives = train_positives(collection)
    twins = duplicates(collection, {passage for judged in positives.values() for passage in judged})
    counts = Counter(dict.fromkeys(("judged", "duplicate", "margin"), 0))

    def pools() -> Iterator[tuple[Ranking, np.ndarray]]:
        ranking = None
        for ranking in rankings(run / "run.parquet"):
            if ranking.query_id not in positives:
                continue
            places, dropped = pool(ranking, positives[ranking.query_id], twins, config)
            counts.update(dropped)
            yield ranking, places
        if ranking is None:
            raise InputError(f"{run / 'run.parquet'}: no training questions; mining needs `train` among search.splits")

    return write(pools(), counts, config, source="mined", positives=positives, collection=collection, work=work)


def rankings(path: Path) -> Iterator[Ranking]:
    """The training questions of a run, one at a time. Memory: a row group."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    last: Ranking | None = None  # its rows may go on in the next batch
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["split", "query_id", "passage_id", "score"]):
            rows = batch.filter(pc.equal(batch["split"], "train"))
            query, passages, scores = rows["query_id"], rows["passage_id"].to_pylist(), rows["score"].to_numpy()
            changes = np.flatnonzero(pc.not_equal(query[1:], query[:-1])) + 1
            for start, stop in pairwise([0, *changes.tolist(), len(rows)] if len(rows) else []):
                part = Ranking(query[start].as_py(), passages[start:stop], scores[start:stop])
                if last is not None and last.query_id == part.query_id:
                    both = np.concatenate([last.scores, part.scores])
                    part = Ranking(part.query_id, last.passage_ids + part.passage_ids, both)
                elif last is not None:
                    yield last
                last = part
    if last is not None:
        yield last


def pool(
    ranking: Ranking, judged: Iterable[str], twins: dict[str, bytes], config: MineConfig
) -> tuple[np.ndarray, Counter[str]]:
    """(places in the ranking that may be negatives, how many were dropped for which reason); `twins`: see `free`."""
    places, dropped = free(ranking.passage_ids[: config.depth], judged, twins)
    best = best_place(ranking, judged)
    reference = ranking.scores[-1 if best is None else best]
    limit = ceiling(float(reference), config.margin_absolute, config.margin_relative)
    kept = np.array(places, dtype=np.int64)
    if limit is not None:
        below = ranking.scores[kept] <= limit
        dropped["margin"] = int((~below).sum())
        kept = kept[below]
    return kept, dropped


def ceiling(positive: float, absolute: float | None, relative: float | None) -> float | None:
    """Highest score that a negative may have beside a positive's score; None: any."""
    limits = []
    if absolute is not None:
        limits.append(positive - absolute)
    if relative is not None:
        limits.append(positive - relative * abs(positive))
    return min(limits, default=None)
