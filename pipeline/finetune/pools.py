"""Pools: the questions of a training, their judged passages and their possible negatives.

Questions are row numbers of queries.parquet, passages are row numbers of passages.parquet.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pipeline.data.barred import FREE, Barred, Dropped, numbers_barred, read_barred, reasons
from pipeline.data.judged import Judged, PassageLists, _lists, index_pairs, read_judged, take
from pipeline.data.stored import input_error_on_read, read_table
from pipeline.errors import InputError
from pipeline.finetune.positives import best_positives

NEGATIVES = "negatives.parquet"
EXACT = 100_000  # passages: a second of hashing
SUBSET = 1  # first number of a seed, so that no two draws share a stream (the others: pipeline/finetune/examples.py)


@dataclass(frozen=True)
class Pools:
    """The n training questions with a judged passage, and the possible negatives of each."""

    queries: np.ndarray
    """[n] int64, ascending."""
    judged: PassageLists
    """The positives of each question, in the order of qrels.parquet: its judged passages, or one passage of each
    document that was cut (positives.py)."""
    barred: Barred
    """The passages that are not negatives of each question, the judged ones included."""
    negatives: tuple[PassageLists, ...]
    """One or two kinds of negatives (first, mined); without barred passages and duplicates."""
    passages: int
    """Passages of the collection."""

    def listed(self) -> np.ndarray:
        """Returns the rows of the passages that are judged or negatives of a question, without duplicates."""
        return np.unique(np.concatenate([self.judged.flat, *(lists.flat for lists in self.negatives)]))


def read_pools(
    collection: Path,
    first: Path,
    depth: int | None = None,
    *,
    bm25: Path | None = None,
    mined: Path | None = None,
    pseudo_labels: Path | None = None,
    pooled: bool = False,
    max_queries: int | None = None,
    seed: int = 0,
    dropped: Dropped | None = None,
) -> Pools:
    """Reads the tables into pools. `first`, `mined`, `pseudo_labels`: folders with a negatives.parquet, the last also
    with the qrels.parquet of further questions. `bm25`: the first stage, whose run chooses the positives of documents
    that are cut (None: `first` is that folder).

    `depth`: best ranks of `first` (None: all). `pooled` joins first and mined negatives into one kind. `max_queries`:
    number of judged questions, drawn by `seed` (None: all). Passages or questions unknown to the collection are left
    out. `dropped` counts the listed passages that are not negatives.
    Raises InputError if no training question has a judged passage.
    """
    judged = read_judged(collection, "train")
    known = subset(judged, max_queries, seed)
    if pseudo_labels is not None:
        both = read_judged(collection, "train", pseudo_labels / "qrels.parquet")
        kept = np.isin(both.queries, known.queries) | ~np.isin(both.queries, judged.queries)
        known = take(both, np.flatnonzero(kept))
    barred = read_barred(collection, known)
    kinds = [read_lists(first / NEGATIVES, known, barred, depth, dropped)]
    if mined is not None:
        kinds.append(read_lists(mined / NEGATIVES, known, barred, dropped=dropped))
        if pooled:
            kinds = [join_lists(*kinds)]
    if pseudo_labels is not None:  # no other kind has negatives of these questions
        further = read_lists(pseudo_labels / NEGATIVES, known, barred, dropped=dropped)
        kinds = [join_lists(kind, further) for kind in kinds]
    positives = best_positives(known, collection, bm25 or first)
    return Pools(known.queries, positives, barred, tuple(kinds), len(known.passage_ids))


def subset(judged: Judged, most: int | None, seed: int) -> Judged:
    """Returns `most` of the questions, drawn by `seed`; a larger subset contains each smaller one. None: all."""
    if most is None:
        return judged
    return take(judged, np.sort(np.random.default_rng([SUBSET, seed]).permutation(len(judged.queries))[:most]))


def with_barred(collection: Path, known: Judged) -> Judged:
    """Returns the questions with the number of barred passages of each, for a check before the work.

    For a collection of more than `EXACT` passages it counts only judged ones: copies leave enough passages there.
    """
    if len(known.passage_ids) > EXACT:
        return known
    return replace(known, all_barred_n=numbers_barred(read_barred(collection, known)))


def read_lists(
    path: Path, known: Judged, barred: Barred, depth: int | None = None, dropped: Dropped | None = None
) -> PassageLists:
    """Reads the passages that a table (query_id, passage_id, optional rank and split) lists per question, best first.

    Leaves barred passages out, and counts them in `dropped`. `depth`: number of ranks to read, or of first passages in
    a table without ranks. None: all. Raises InputError if the table is missing.
    """
    if not path.is_file():
        raise InputError(f"{path}: missing; fine-tuning reads its negatives from this file")
    with input_error_on_read(path):
        ranked = "rank" in pq.read_schema(path).names  # imported triples have no ranks
    table = read_table(
        path,
        columns=["query_id", "passage_id", *(["rank"] if ranked else [])],
        filters=[("rank", "<=", depth)] if ranked and depth is not None else None,
    )
    if ranked:
        table = table.sort_by("rank")  # stable
    queries, passages = index_pairs(table, known.query_ids, known.passage_ids)
    reason_N = reasons(barred, queries, passages)
    if dropped is not None:
        dropped.count_pairs(reason_N, queries, passages, known)
    free = reason_N == FREE
    lists = _lists(queries[free], passages[free], len(known.queries))
    if ranked or depth is None:
        return lists
    return _lists(*_best(lists, depth), len(known.queries))


def join_lists(*kinds: PassageLists) -> PassageLists:
    """Returns each question's passages of all `kinds`, in their order, without duplicates."""
    queries, passages = (np.concatenate(column) for column in zip(*map(_pairs, kinds), strict=True))
    return _lists(queries, passages, len(kinds[0]))


def _pairs(lists: PassageLists) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(len(lists)), lists.lengths), lists.flat


def _best(lists: PassageLists, depth: int) -> tuple[np.ndarray, np.ndarray]:
    queries, passages = _pairs(lists)
    inside = np.arange(len(passages)) - lists.offsets[queries] < depth
    return queries[inside], passages[inside]


def save_pools(pools: Pools, path: Path) -> None:
    """Writes pools to one `.npz` file."""
    lists = {"judged": pools.judged} | {f"negatives{i}": kind for i, kind in enumerate(pools.negatives)}
    arrays = {f"barred_{field}": array for field, array in pools.barred._asdict().items()}
    arrays |= {f"{name}_{field}": array for name, one in lists.items() for field, array in asdict(one).items()}
    with open(path, "wb") as file:
        np.savez(file, queries=pools.queries, passages=np.array(pools.passages), **arrays)


def load_pools(path: Path) -> Pools:
    """Reads the pools that `save_pools` wrote."""
    with np.load(path) as arrays:
        kinds = [name for name in ("negatives0", "negatives1") if f"{name}_flat" in arrays]
        names = ("judged", *kinds)
        barred = Barred(*(arrays[f"barred_{field}"] for field in Barred._fields))
        judged, *negatives = (PassageLists(arrays[f"{n}_flat"], arrays[f"{n}_offsets"]) for n in names)
        return Pools(arrays["queries"], judged, barred, tuple(negatives), int(arrays["passages"]))
