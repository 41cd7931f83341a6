"""The pools of a training on questions, positives and negatives, read and checked before the work."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.advice import Changes, Unfit, check_fits, option
from pipeline.errors import InputError
from pipeline.finetune.config import ExamplesConfig, TrainSubset
from pipeline.notices import noticed
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics

if TYPE_CHECKING:
    from pipeline.data.barred import Dropped
    from pipeline.data.judged import Judged
    from pipeline.finetune.pools import Pools


def first_negatives(negatives_from: str, collection: Path, bm25: Path) -> Path:
    """Returns the folder of the first negatives: those of the bm25 stage, or those of the collection's own files."""
    return collection if negatives_from == "collection" else bm25


def check_training_pools(config: ExamplesConfig, train_subset: TrainSubset, known: "Judged") -> None:
    """Raises InputError if the collection is too small for the training questions of an epoch; called early.

    `known`: the judged questions, see `pools.with_barred`.
    """
    from pipeline.finetune.examples import check_enough
    from pipeline.finetune.pools import subset

    own = subset(known, train_subset.queries, train_subset.seed)
    check_enough("negatives_per_query", config.negatives_per_query, own.barred_n, len(own.passage_ids))


def fewer(config: ExamplesConfig, train_subset: TrainSubset, known: "Judged") -> Changes:
    """Returns the change to as many negatives as the collection has; empty if it has enough."""
    from pipeline.finetune.examples import room
    from pipeline.finetune.pools import subset

    own = subset(known, train_subset.queries, train_subset.seed)
    left = room(own.barred_n, len(own.passage_ids))
    return {"negatives_per_query": left} if config.negatives_per_query > left else {}


def check_questions(node: Planned, *agreeing: str) -> Iterator[InputError]:
    """Training questions, and negatives where they are to come with the collection; an early check.

    `agreeing`: other sections whose `negatives_from` and `negative_depth` must be the same.
    """
    collection = node.input("collection")
    if not collection.metrics.get("train_relevant"):
        start = node.inputs.get("start")
        before = f"`--until {start.name}` stops before it, and " if start else ""
        raise InputError(
            f"{node.name}: the collection has no training questions with a relevant passage; {before}an existing model "
            "needs none (--model MODEL --adapt)"
        )
    if node.config.negatives_from == "collection" and not (collection.path / "negatives.parquet").exists():
        problem = f"{node.section}.negatives_from: the collection came without negatives"
        yield Unfit(problem, _bm25_negatives(node, (*agreeing, node.section)))


def _bm25_negatives(node: Planned, sections: Iterable[str]) -> list[str]:
    """The options by which a training takes BM25's negatives, no further down than these are kept."""
    bm25, depth = node.inputs.get("bm25"), node.config.negative_depth
    changes: dict[str, str | int] = {"negatives_from": "bm25"}
    if bm25 is not None and depth is not None and depth > (kept := getattr(bm25.config, "negatives_depth", depth)):
        changes["negative_depth"] = kept
    return [option(f"{section}.{field}", value) for section in sections for field, value in changes.items()]


def judged_questions(collection: Planned, split: str) -> "Judged":
    """The judged questions of a split, with what is barred of each. Seconds for millions of passages, but once."""
    return collection.read(_judged, split)


def _judged(collection: Path, split: str) -> "Judged":
    from pipeline.data.judged import read_judged
    from pipeline.finetune.pools import with_barred

    return with_barred(collection, read_judged(collection, split))


def check_room(
    node: Planned, check: Callable[[Any], object], proposals: Callable[[], Iterable[Changes]]
) -> Iterator[InputError]:
    """Yields what `check` refuses of the node's configuration, with the first of the proposals that it accepts."""
    try:
        check_fits(node.section, node.config, check, proposals)
    except Unfit as error:
        yield Unfit(f"{node.section}: {error.problem}", error.options)


def read_training_pools(
    config: ExamplesConfig,
    train_subset: TrainSubset,
    collection: Path,
    bm25: Path,
    mined: Path | None,
    pseudo_labels: Path | None = None,
    *,
    dropped: "Dropped | None" = None,
) -> "Pools":
    """Reads the pools of first negatives and, if not None, of mined ones and of pseudo-labelled questions.

    `dropped`: see `pools.read_pools`.
    Raises InputError if no training question has a judged passage, or if the collection is too small.
    """
    from pipeline.data.barred import numbers_barred
    from pipeline.finetune.examples import check_enough
    from pipeline.finetune.pools import read_pools

    pools = read_pools(
        collection,
        first_negatives(config.negatives_from, collection, bm25),
        config.negative_depth,
        bm25=bm25,
        mined=mined,
        pseudo_labels=pseudo_labels,
        pooled=config.mix_negatives == "pooled",
        max_queries=train_subset.queries,
        seed=train_subset.seed,
        dropped=dropped,
    )
    check_enough("negatives_per_query", config.negatives_per_query, numbers_barred(pools.barred), pools.passages)
    return pools


def pool_counts(pools: "Pools", negatives_per_query: int, dropped: "Dropped") -> Metrics:
    """Returns metrics: questions, examples, negatives per epoch from the full collection because a pool is too small,
    and the dropped passages of the lists, with their notices.
    """
    from pipeline.finetune.examples import epoch_size, filled

    return {
        "queries": len(pools.queries),
        "examples_per_epoch": epoch_size(pools),
        "negatives_filled": filled(pools, negatives_per_query),
        **dropped.metrics(),
        **noticed(dropped.notices()),
    }
