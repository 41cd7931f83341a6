"""Fine-tuning a bi-encoder on questions, their judged passages and negatives (coCondenser, section 3.3)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.advice import Changes
from pipeline.errors import InputError
from pipeline.finetune.config import FinetuneConfig, TrainSubset
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization.token_files import Tokens

if TYPE_CHECKING:
    from pipeline.data.judged import Judged
    from pipeline.finetune.pools import Pools
    from pipeline.finetune.soft_targets import Scores
    from pipeline.finetune.validation import Candidates


def check_finetune(
    config: FinetuneConfig, train_subset: TrainSubset, judged: Callable[[str], "Judged"], kinds: int | None
) -> None:
    """Raises InputError if the training will fail with this collection; called early.

    `judged`: returns a split's questions, see `pools.read_judged`. `kinds`: number of kinds of negatives; a question
    occurs once per epoch with each kind. None if pseudo-labelled questions will be added.
    """
    import numpy as np

    from pipeline.finetune import training_pools, validation
    from pipeline.finetune.scheduling.batch_search import check_pairs

    training_pools.check_training_pools(config, train_subset, judged("train"))
    if config.batch_order.startswith("abs") and kinds:
        questions = len(judged("train").queries)
        check_pairs(kinds * train_subset.size(questions), config.batch_queries)
    if config.validation.questions:
        validation.draw_questions(config.validation, judged("dev"), np.random.default_rng(config.seed))


def smaller_settings(
    config: FinetuneConfig, train_subset: TrainSubset, judged: Callable[[str], "Judged"], kinds: int | None
) -> Iterator[Changes]:
    """Yields changes for a small collection, which `check_finetune` may accept; the last is without validation."""
    from pipeline.finetune import training_pools
    from pipeline.finetune.examples import room

    questions = len(judged("train").queries)
    pairs = (kinds or 0) * train_subset.size(questions)
    changes = dict(training_pools.fewer(config, train_subset, judged("train")))
    if config.batch_order.startswith("abs") and kinds and config.batch_queries > pairs:
        changes["batch_queries"] = pairs
    yield changes
    if config.validation.questions:
        own = config.validation.model_dump()
        with suppress(InputError):
            dev = judged("dev")
            candidates = min(config.validation.candidates, room(dev.barred_n, len(dev.passage_ids)) + 1)
            yield changes | {"validation": own | {"candidates": candidates}}
        yield changes | {"validation": own | {"questions": 0, "keep": "last"}}


def check_collection(node: Planned) -> Iterator[InputError]:
    """Questions and passages enough; an early check."""
    from pipeline.finetune import training_pools

    yield from training_pools.check_questions(node)
    config, subset = node.config, node.shared["train_subset"]
    judged = partial(training_pools.judged_questions, node.input("collection"))
    kinds = (
        None
        if node.inputs["pseudo_labels"]
        else 2
        if node.inputs["mined"] and config.mix_negatives == "separate_epochs"
        else 1
    )
    yield from training_pools.check_room(
        node,
        lambda c: check_finetune(c, subset, judged, kinds),
        lambda: smaller_settings(config, subset, judged, kinds),
    )


def finetune(
    config: FinetuneConfig,
    encoder: EncoderConfig,
    train_subset: TrainSubset,
    collection: Path,
    tokens: Path,
    start: Path,
    bm25: Path,
    mined: Path | None,
    soft_labels: Path | None,
    pseudo_labels: Path | None,
    work: Work,
) -> Metrics:
    """Trains from checkpoint `start` and writes a checkpoint (`query/` and `passage/` if untied).

    `bm25` and `mined` hold a `negatives.parquet`; without `mined` this is stage 1. `soft_labels`: a
    cross-encoder's scores. `pseudo_labels`: further questions with a cross-encoder's judgements and negatives. If the
    recipe validates or schedules, `validation.parquet` and `schedule.parquet` have one row per epoch. The metrics count
    the negatives per epoch that were drawn from the full collection because a pool was too small, the listed negatives
    that were dropped (pipeline/data/barred.py), and the truncated questions. Raises InputError if no training question
    has a judged passage, before any training.
    """
    from pipeline.data.barred import Dropped
    from pipeline.finetune import examples, merge, pools, soft_targets, training_pools, validation
    from pipeline.finetune.scheduling.batch_search import check_pairs
    from pipeline.runtime.gpu_ranks import fed_ranks
    from pipeline.runtime.launch import launch

    dropped = Dropped()
    all_pools = training_pools.read_training_pools(
        config, train_subset, collection, bm25, mined, pseudo_labels, dropped=dropped
    )
    if config.batch_order.startswith("abs"):
        check_pairs(examples.epoch_size(all_pools), config.batch_queries)
    work.checkpoints.mkdir(parents=True, exist_ok=True)
    files = {"pools": work.checkpoints / "pools.npz"}
    pools.save_pools(all_pools, files["pools"])
    if config.loss == "soft_labels":
        if soft_labels is None:
            raise InputError("loss: soft_labels needs a cross-encoder's scores")
        files["scores"] = work.checkpoints / "scores.npz"
        save_arrays(files["scores"], soft_targets.teacher_scores(soft_labels / "scores.parquet", collection, all_pools))
    if config.validation.questions:
        candidates = validation.read_candidates(config.validation, collection, bm25, config.seed)
        files["candidates"] = work.checkpoints / "candidates.npz"
        save_arrays(files["candidates"], candidates)
    if config.merge is not None:
        deciding = merge.read_dev_candidates(config.merge, collection, bm25, config.seed)
        if deciding is not None:
            files["merge_candidates"] = work.checkpoints / "merge_candidates.npz"
            save_arrays(files["merge_candidates"], deciding)
    machine = fed_ranks(work.machine, lambda: update_tokens(config, encoder, Tokens.open(tokens), all_pools))
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "tokens": str(tokens),
        "start": str(start),
        "files": {name: str(path) for name, path in files.items()},
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "machine": machine.model_dump(mode="json"),
    }
    result = launch("pipeline.finetune.train:train_encoders", arguments, machine, work.progress, work.checkpoints)
    return result | training_pools.pool_counts(all_pools, config.negatives_per_query, dropped)


def update_tokens(config: FinetuneConfig, encoder: EncoderConfig, data: Tokens, pools: "Pools") -> float:
    """Returns about the mean tokens of an update, over all ranks; prefixes and separators do not count."""
    import numpy as np

    from pipeline.finetune.examples import mean_batch

    passage_N = np.minimum(data.titles.lengths, encoder.title_tokens) + data.passages.lengths
    question = np.minimum(data.queries.lengths[pools.queries] + 2, encoder.question_tokens).mean()
    passage = np.minimum(passage_N + 2, config.passage_tokens).mean()
    return mean_batch(pools, config.batch_queries) * float(question + (1 + config.negatives_per_query) * passage)


def save_arrays(path: Path, arrays: "Candidates | Scores") -> None:
    """Writes a tuple of arrays for the child process."""
    import numpy as np

    with open(path, "wb") as file:
        np.savez(file, **arrays._asdict())
