"""Pools: the questions of a training, their judged passages, and what may stand beside each as a negative.

Row numbers everywhere: of queries.parquet for questions, of passages.parquet for passages.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pipeline.data.barred import FREE, Barred, Dropped, numbers_barred, reasons
from pipeline.data.barred import read as read_barred
from pipeline.data.judged import Judged, Lists, _lists, positions, read_judged, take
from pipeline.data.stored import read_table, told
from pipeline.errors import InputError

NEGATIVES = "negatives.parquet"
EXACT = 100_000  # passages: a second of hashing
SUBSET = 1  # first word of a seed, so that no two draws share a stream (pipeline/finetune/examples.py has the others)


@dataclass(frozen=True)
class Pools:
    """The n training questions with a judged passage, and what may stand beside each."""

    queries: np.ndarray
    """[n] int64, ascending."""
    judged: Lists
    """All judged passages of each question, in the order of qrels.parquet."""
    barred: Barred
    """Which passages are no negatives of each question, judged ones among them."""
    negatives: tuple[Lists, ...]
    """One or two kinds of negatives (first ones, mined ones); none is barred, none occurs twice."""
    passages: int
    """Passages of the collection."""

    def listed(self) -> np.ndarray:
        """Rows of the passages that are judged or negatives of a question, none twice."""
        return np.unique(np.concatenate([self.judged.flat, *(lists.flat for lists in self.negatives)]))


def read_pools(
    collection: Path,
    first: Path,
    depth: int = 0,
    *,
    mined: Path | None = None,
    pseudo: Path | None = None,
    pooled: bool = False,
    max_queries: int = 0,
    seed: int = 0,
    dropped: Dropped | None = None,
) -> Pools:
    """Read the tables into pools. `first`, `mined`, `pseudo`: folders with a negatives.parquet, `pseudo` also with the
    qrels.parquet of further questions.

    `depth`: best ranks of `first` (0: all). `pooled` joins first and mined negatives into one kind. `max_queries`: of
    the judged questions, drawn by `seed` (0: all). Passages or questions unknown to the collection are left out.
    `dropped` counts what the tables list and is no negative.
    Raises InputError where no training question has a judged passage.
    """
    judged = read_judged(collection, "train")
    known = subset(judged, max_queries, seed)
    if pseudo is not None:
        both = read_judged(collection, "train", pseudo / "qrels.parquet")
        kept = np.isin(both.queries, known.queries) | ~np.isin(both.queries, judged.queries)
        known = take(both, np.flatnonzero(kept))
    barred = read_barred(collection, known)
    kinds = [read_lists(first / NEGATIVES, known, barred, depth, dropped)]
    if mined is not None:
        kinds.append(read_lists(mined / NEGATIVES, known, barred, dropped=dropped))
        if pooled:
            kinds = [joined(*kinds)]
    if pseudo is not None:  # no other kind has negatives of these questions
        further = read_lists(pseudo / NEGATIVES, known, barred, dropped=dropped)
        kinds = [joined(kind, further) for kind in kinds]
    return Pools(known.queries, known.lists, barred, tuple(kinds), len(known.passage_ids))


def subset(judged: Judged, most: int, seed: int) -> Judged:
    """`most` of the questions, drawn by `seed`, so that smaller subsets lie within larger ones. 0: all."""
    if not most:
        return judged
    return take(judged, np.sort(np.random.default_rng([SUBSET, seed]).permutation(len(judged.queries))[:most]))


def with_barred(collection: Path, known: Judged) -> Judged:
    """The same questions, and how many passages are barred of each, for a check before the work.

    Of a collection of more than `EXACT` passages, where copies leave room enough, with the judged ones alone.
    """
    if len(known.passage_ids) > EXACT:
        return known
    return replace(known, all_barred_n=numbers_barred(read_barred(collection, known)))


def read_lists(path: Path, known: Judged, barred: Barred, depth: int = 0, dropped: Dropped | None = None) -> Lists:
    """Passages that a table (query_id, passage_id, perhaps rank and split) lists for each question, best first.

    Barred ones are left out, and counted in `dropped`. `depth`: ranks looked at; of a table without ranks the first
    ones. 0: all.
    """
    if not path.is_file():
        raise InputError(f"{path}: missing; fine-tuning takes its negatives from there")
    with told(path):
        ranked = "rank" in pq.read_schema(path).names  # triples given from outside have no ranks
    table = read_table(
        path,
        columns=["query_id", "passage_id", *(["rank"] if ranked else [])],
        filters=[("rank", "<=", depth)] if ranked and depth else None,
    )
    if ranked:
        table = table.sort_by("rank")  # stable
    queries, passages = positions(table, known.query_ids, known.passage_ids)
    reason_N = reasons(barred, queries, passages)
    if dropped is not None:
        dropped.count_pairs(reason_N, queries, passages, known)
    free = reason_N == FREE
    lists = _lists(queries[free], passages[free], len(known.queries))
    if ranked or not depth:
        return lists
    return _lists(*_best(lists, depth), len(known.queries))


def joined(*kinds: Lists) -> Lists:
    """Each question's passages of all `kinds`, in their order, none twice."""
    queries, passages = (np.concatenate(column) for column in zip(*map(_pairs, kinds), strict=True))
    return _lists(queries, passages, len(kinds[0]))


def _pairs(lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(len(lists)), lists.lengths), lists.flat


def _best(lists: Lists, depth: int) -> tuple[np.ndarray, np.ndarray]:
    queries, passages = _pairs(lists)
    inside = np.arange(len(passages)) - lists.offsets[queries] < depth
    return queries[inside], passages[inside]


def save_pools(pools: Pools, path: Path) -> None:
    """Write pools to one `.npz` file."""
    lists = {"judged": pools.judged} | {f"negatives{i}": kind for i, kind in enumerate(pools.negatives)}
    arrays = {f"barred_{field}": array for field, array in pools.barred._asdict().items()}
    arrays |= {f"{name}_{field}": array for name, one in lists.items() for field, array in asdict(one).items()}
    with open(path, "wb") as file:
        np.savez(file, queries=pools.queries, passages=np.array(pools.passages), **arrays)


def load_pools(path: Path) -> Pools:
    """Read what `save_pools` wrote."""
    with np.load(path) as arrays:
        kinds = [name for name in ("negatives0", "negatives1") if f"{name}_flat" in arrays]
        names = ("judged", *kinds)
        refused = Barred(*(arrays[f"barred_{field}"] for field in Barred._fields))
        judged, *negatives = (Lists(arrays[f"{n}_flat"], arrays[f"{n}_offsets"]) for n in names)
        return Pools(arrays["queries"], judged, refused, tuple(negatives), int(arrays["passages"]))
