"""Fine-tuning a bi-encoder on questions, their judged passages and negatives (coCondenser, section 3.3)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.advice import Changes
from pipeline.errors import InputError
from pipeline.finetune.config import FinetuneConfig
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from pipeline.data.judged import Judged
    from pipeline.finetune.soft_targets import Scores
    from pipeline.finetune.validation import Candidates


def check_finetune(config: FinetuneConfig, judged: Callable[[str], "Judged"], kinds: int | None) -> None:
    """InputError where the training is bound to fail with this collection: asked early, in time.

    `judged`: a split's questions, see `pools.read_judged`. `kinds`: of negatives, with each of which a question stands
    in an epoch; None where pseudo-labelled questions will join them.
    """
    import numpy as np

    from pipeline.finetune import training_pools, validation
    from pipeline.finetune.scheduling.batch_search import check_pairs

    training_pools.check(config, judged("train"))
    if config.order.startswith("abs") and kinds:
        questions = len(judged("train").queries)
        check_pairs(kinds * min(questions, config.max_queries or questions), config.batch_queries)
    if config.validation.questions:
        validation.drawn(config.validation, judged("dev"), np.random.default_rng(config.seed))


def smaller(config: FinetuneConfig, judged: Callable[[str], "Judged"], kinds: int | None) -> Iterator[Changes]:
    """What `check_finetune` may accept of a small collection; in the end without validation."""
    from pipeline.finetune import training_pools
    from pipeline.finetune.examples import room

    questions = len(judged("train").queries)
    pairs = (kinds or 0) * min(questions, config.max_queries or questions)
    changes = dict(training_pools.fewer(config, judged("train")))
    if config.order.startswith("abs") and kinds and config.batch_queries > pairs:
        changes["batch_queries"] = pairs
    yield changes
    if config.validation.questions:
        own = config.validation.model_dump()
        with suppress(InputError):
            dev = judged("dev")
            candidates = min(config.validation.candidates, room(dev.barred_n, len(dev.passage_ids)) + 1)
            yield changes | {"validation": own | {"candidates": candidates}}
        yield changes | {"validation": own | {"questions": 0, "select": "last"}}


def check_collection(node: Planned) -> Iterator[InputError]:
    """Questions and passages enough; an early check."""
    from pipeline.finetune import training_pools

    yield from training_pools.check_questions(node)
    config, judged = node.config, partial(training_pools.judged, node.input("collection"))
    kinds = None if node.inputs["pseudo"] else 2 if node.inputs["mined"] and config.mix == "twice" else 1
    yield from training_pools.check_room(
        node, lambda c: check_finetune(c, judged, kinds), lambda: smaller(config, judged, kinds)
    )


def finetune(
    config: FinetuneConfig,
    encoder: EncoderConfig,
    collection: Path,
    tokens: Path,
    start: Path,
    bm25: Path,
    mined: Path | None,
    scores: Path | None,
    pseudo: Path | None,
    work: Work,
) -> Metrics:
    """Train from checkpoint `start` and write a checkpoint (`query/` and `passage/` where untied).

    `bm25` and `mined` hold a `negatives.parquet`; without `mined` this is stage 1. `scores`: a cross-encoder's, for
    soft labels. `pseudo`: further questions with judgements and negatives of a cross-encoder. Where the recipe
    validates or schedules, `validation.parquet` and `schedule.parquet` have a row an epoch. The metrics count the
    negatives an epoch that were drawn from the whole collection because a pool was too small, what of the negatives
    listed was dropped (pipeline/data/barred.py), and the questions that were cut. Raises InputError where no training
    question has a judged passage, before anything is trained.
    """
    from pipeline.data.barred import Dropped
    from pipeline.finetune import examples, pools, soft_targets, training_pools, validation
    from pipeline.finetune.scheduling.batch_search import check_pairs
    from pipeline.runtime.launch import launch

    dropped = Dropped()
    drawn_from = training_pools.read(config, collection, bm25, mined, pseudo, dropped=dropped)
    if config.order.startswith("abs"):
        check_pairs(examples.epoch_size(drawn_from), config.batch_queries)
    work.checkpoints.mkdir(parents=True, exist_ok=True)
    given = {"pools": work.checkpoints / "pools.npz"}
    pools.save_pools(drawn_from, given["pools"])
    if config.loss == "soft_labels":
        if scores is None:
            raise InputError("loss: soft_labels needs a cross-encoder's scores")
        given["scores"] = work.checkpoints / "scores.npz"
        save(given["scores"], soft_targets.teacher_scores(scores / "scores.parquet", collection, drawn_from))
    if config.validation.questions:
        candidates = validation.read_candidates(config.validation, collection, bm25, config.seed)
        given["candidates"] = work.checkpoints / "candidates.npz"
        save(given["candidates"], candidates)
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "tokens": str(tokens),
        "start": str(start),
        "given": {name: str(path) for name, path in given.items()},
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "machine": work.machine.model_dump(mode="json"),
    }
    result = launch("pipeline.finetune.train:train", arguments, work.machine, work.progress, work.checkpoints)
    return result | training_pools.counts(drawn_from, config.negatives_per_query, dropped)


def save(path: Path, arrays: "Candidates | Scores") -> None:
    """Write a tuple of arrays for the child."""
    import numpy as np

    with open(path, "wb") as file:
        np.savez(file, **arrays._asdict())
