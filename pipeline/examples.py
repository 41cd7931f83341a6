"""Training examples of a bi-encoder, a pure function of (seed, epoch, index).

An example is a question, one of its judged passages and n negatives. Negatives are a window over a seeded shuffle of
the question's pool; the window moves on with every epoch (coCondenser's authors' code). Row numbers everywhere: of
queries.parquet for questions, of passages.parquet for passages.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import InputError

ORDER, SUBSET, POSITIVE, WINDOW, FILL = range(5)  # first word of a seed, so that no two draws share a stream


@dataclass(frozen=True)
class Lists:
    """n lists of passages in one flat array."""

    flat: np.ndarray
    """[total] int32."""
    offsets: np.ndarray
    """[n + 1] int64."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Pools:
    """The n training questions with a judged passage, and what may stand beside each."""

    queries: np.ndarray
    """[n] int64, ascending."""
    judged: Lists
    """All judged passages of each question, in the order of qrels.parquet."""
    negatives: tuple[Lists, ...]
    """One or two kinds of negatives (first ones, mined ones); none is judged, none occurs twice."""
    passages: int
    """Passages of the collection."""


@dataclass(frozen=True)
class Draw:
    """How passages are drawn to stand beside a question."""

    negatives: int
    """n, of each question."""
    positives_considered: int
    """Judged passages among which the positive is drawn, first ones first. 0: all."""
    seed: int


@dataclass(frozen=True)
class Batch:
    """Q examples of n negatives each."""

    queries_Q: np.ndarray
    passages_QN: np.ndarray
    """[Q, 1 + n]: the positive, then the negatives."""
    excluded_QP: np.ndarray
    """[Q, Q * (1 + n)] bool: passages of the flattened batch that are judged for the question, own positive aside."""


def read_pools(
    collection: Path, first: Path, depth: int, mined: Path | None, mix: str, max_queries: int, seed: int
) -> Pools:
    """Read the tables into pools. `first`, `mined`: negatives.parquet files; `depth`: best of `first` (0: all).

    `mix` = `twice` keeps both kinds apart, `pooled` joins them. Passages or questions unknown to the collection are
    left out. Raises InputError where no training question has a judged passage.
    """
    passage_ids = pq.read_table(collection / "passages.parquet", columns=["passage_id"]).column(0)
    table = pq.read_table(collection / "queries.parquet", columns=["query_id", "split"])
    train = np.flatnonzero(pc.equal(table["split"], "train").to_numpy())
    query_ids = table["query_id"].take(pa.array(train))

    qrels = pq.read_table(collection / "qrels.parquet", filters=[("split", "=", "train"), ("relevance", ">", 0)])
    judged = _lists(*_rows(qrels, query_ids, passage_ids), len(train))
    chosen = np.flatnonzero(judged.lengths)
    if not len(chosen):
        raise InputError(f"{collection / 'qrels.parquet'}: no training question has a judged passage")
    if max_queries:
        chosen = np.sort(np.random.default_rng([SUBSET, seed]).permutation(chosen)[:max_queries])

    negatives = [_negatives(first, query_ids, passage_ids, judged, depth)]
    if mined is not None:
        negatives.append(_negatives(mined, query_ids, passage_ids, judged, 0))
        if mix == "pooled":
            negatives = [_join(*negatives)]
    kept = tuple(_take(lists, chosen) for lists in negatives)
    return Pools(train[chosen].astype(np.int64), _take(judged, chosen), kept, len(passage_ids))


def _rows(table: pa.Table, query_ids: pa.ChunkedArray, passage_ids: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of a table's query and passage ids; -1 where unknown."""
    queries = pc.fill_null(pc.index_in(table["query_id"], value_set=query_ids), -1)
    passages = pc.fill_null(pc.index_in(table["passage_id"], value_set=passage_ids), -1)
    return queries.to_numpy(), passages.to_numpy()


def _lists(queries: np.ndarray, passages: np.ndarray, n: int) -> Lists:
    """Group pairs by question, in their order, without unknown ones and repetitions."""
    known = (queries >= 0) & (passages >= 0)
    queries, passages = queries[known].astype(np.int64), passages[known]
    first = np.sort(np.unique(queries << 32 | passages, return_index=True)[1])
    queries, passages = queries[first], passages[first]
    order = np.argsort(queries, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(queries, minlength=n))))
    return Lists(passages[order].astype(np.int32), offsets)


def _pairs(lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(len(lists)), lists.lengths), lists.flat


def _negatives(
    path: Path, query_ids: pa.ChunkedArray, passage_ids: pa.ChunkedArray, judged: Lists, depth: int
) -> Lists:
    if not path.is_file():
        raise InputError(f"{path}: missing; fine-tuning takes its negatives from there")
    ranked = "rank" in pq.read_schema(path).names  # triples given from outside have no ranks
    table = pq.read_table(
        path,
        columns=["query_id", "passage_id", *(["rank"] if ranked else [])],
        filters=[("rank", "<=", depth)] if ranked and depth else None,
    )
    if ranked:
        table = table.sort_by("rank")  # stable
    queries, passages = _rows(table, query_ids, passage_ids)
    positive_queries, positives = _pairs(judged)
    keys = queries.astype(np.int64) << 32 | passages
    free = ~np.isin(keys, positive_queries.astype(np.int64) << 32 | positives)
    lists = _lists(queries[free], passages[free], len(judged))
    if ranked or not depth:
        return lists
    return _lists(*_best(lists, depth), len(judged))


def _best(lists: Lists, depth: int) -> tuple[np.ndarray, np.ndarray]:
    queries, passages = _pairs(lists)
    inside = np.arange(len(passages)) - lists.offsets[queries] < depth
    return queries[inside], passages[inside]


def _join(one: Lists, other: Lists) -> Lists:
    pairs = zip(_pairs(one), _pairs(other), strict=True)
    queries, passages = (np.concatenate(pair) for pair in pairs)
    return _lists(queries, passages, len(one))


def _take(lists: Lists, chosen: np.ndarray) -> Lists:
    lengths = lists.lengths[chosen]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return Lists(lists.flat[np.repeat(lists.offsets[chosen], lengths) + inside], offsets)


def epoch_size(pools: Pools) -> int:
    """Examples in an epoch: every question once with each kind of negatives."""
    return len(pools.queries) * len(pools.negatives)


def filled(pools: Pools, negatives_per_query: int) -> int:
    """Negatives an epoch that a pool is too small for, drawn from the whole collection instead."""
    return int(sum(np.maximum(0, negatives_per_query - lists.lengths).sum() for lists in pools.negatives))


@lru_cache(maxsize=1)
def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The examples of an epoch in the order of training, a permutation of range(size)."""
    return np.random.default_rng([ORDER, seed, epoch]).permutation(size)


def window(pool: np.ndarray, number: int, epoch: int, seed: int, example: int) -> np.ndarray:
    """The `number` negatives of `epoch`: a window over the shuffled pool that goes round; all of a smaller pool."""
    shuffled = np.random.default_rng([WINDOW, seed, example]).permutation(pool)
    return np.roll(shuffled, -epoch * number)[:number] if number < len(pool) else shuffled


def fill(taken: np.ndarray, judged: np.ndarray, number: int, passages: int, rng: np.random.Generator) -> np.ndarray:
    """`taken` and passages drawn from the whole collection, `number` together, none judged, none twice."""
    found = [int(passage) for passage in taken]
    refused = {*found, *(int(passage) for passage in judged)}
    while len(found) < number:
        passage = int(rng.integers(passages))
        if passage not in refused:
            found.append(passage)
            refused.add(passage)
    return np.array(found, dtype=np.int64)


def example(pools: Pools, epoch: int, index: int, draw: Draw) -> tuple[int, np.ndarray]:
    """(place of the question in the pools, passages [1 + n]) of an example, one of range(epoch_size), in an epoch."""
    kind, place = divmod(index, len(pools.queries))
    taken = window(pools.negatives[kind][place], draw.negatives, epoch, draw.seed, index)
    rng = np.random.default_rng([FILL, draw.seed, epoch, index])
    judged = pools.judged[place]
    negatives = fill(taken, judged, draw.negatives, pools.passages, rng)
    return place, np.append(positive(pools, epoch, index, draw), negatives)


def positive(pools: Pools, epoch: int, index: int, draw: Draw) -> int:
    """The judged passage that an example has in an epoch."""
    considered = pools.judged[index % len(pools.queries)][: draw.positives_considered or None]
    return int(np.random.default_rng([POSITIVE, draw.seed, epoch, index]).choice(considered))


def batch(pools: Pools, epoch: int, indices: np.ndarray, draw: Draw) -> Batch:
    """The examples `indices` of an epoch."""
    drawn = [example(pools, epoch, int(index), draw) for index in indices]
    places = np.array([place for place, _ in drawn])
    passages_QN = np.stack([passages for _, passages in drawn])
    return Batch(pools.queries[places], passages_QN, _excluded(pools.judged, places, passages_QN))


def _excluded(judged: Lists, places: np.ndarray, passages_QN: np.ndarray) -> np.ndarray:
    flat = passages_QN.ravel()
    by_id = np.argsort(flat, kind="stable")
    mine = [judged[place] for place in places]
    rows = np.repeat(np.arange(len(places)), [len(one) for one in mine])
    wanted = np.concatenate(mine)
    left = np.searchsorted(flat, wanted, "left", sorter=by_id)
    right = np.searchsorted(flat, wanted, "right", sorter=by_id)
    excluded_QP = np.zeros((len(places), len(flat)), dtype=bool)
    for hit in np.flatnonzero(right > left):
        excluded_QP[rows[hit], by_id[left[hit] : right[hit]]] = True
    excluded_QP[np.arange(len(places)), np.arange(len(places)) * passages_QN.shape[1]] = False
    return excluded_QP


def batches(size: int, most: int) -> np.ndarray:
    """Edges of an epoch's batches of at most `most` of `size` examples, of sizes that differ by at most one."""
    number = -(-size // most)
    return np.arange(number + 1) * size // number


def save_pools(pools: Pools, path: Path) -> None:
    """Write pools to one `.npz` file."""
    lists = {"judged": pools.judged} | {f"negatives{i}": kind for i, kind in enumerate(pools.negatives)}
    arrays = {f"{name}_{field}": array for name, one in lists.items() for field, array in asdict(one).items()}
    with open(path, "wb") as file:
        np.savez(file, queries=pools.queries, passages=np.array(pools.passages), **arrays)


def load_pools(path: Path) -> Pools:
    """Read what `save_pools` wrote."""
    with np.load(path) as arrays:
        kinds = [name for name in ("negatives0", "negatives1") if f"{name}_flat" in arrays]
        judged, *negatives = (Lists(arrays[f"{n}_flat"], arrays[f"{n}_offsets"]) for n in ("judged", *kinds))
        return Pools(arrays["queries"], judged, tuple(negatives), int(arrays["passages"]))
