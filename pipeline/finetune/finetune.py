"""Fine-tuning a bi-encoder on questions, their judged passages and negatives (coCondenser, section 3.3)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from pipeline.advice import Changes
from pipeline.config import Config, Seed
from pipeline.errors import InputError
from pipeline.finetune.validation import ValidationConfig
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.runtime.work import Metrics, Work
from pipeline.training.loop import Optimiser

if TYPE_CHECKING:
    from pipeline.finetune.pools import Judged
    from pipeline.finetune.soft_targets import Scores
    from pipeline.finetune.validation import Candidates


class AbsConfig(Config):
    """How Adaptive Batch Scheduling searches, where `order` asks for it."""

    beam_width: int = Field(ge=1)
    """Beam search compares so many swaps squared. The paper does not give it."""
    list_depth: int = Field(ge=1)
    """Candidates of beam search, and of greedy search beyond 10,000 pairs: each question's best passages and each
    passage's best questions. 100 in the ABS paper."""
    pool: int = Field(ge=0)
    """Most pairs that are scheduled among themselves, a random part of the epoch: less memory, and the first batches
    are there sooner. 0: all."""


class FinetuneConfig(Config):
    epochs: int = Field(ge=1)
    """Passes over the training examples. 3 (MARCO) or 40 (NQ) in coCondenser, section 4."""
    batch_queries: int = Field(ge=1)
    """Questions in an update, over all ranks. 8 (MARCO), 128 (NQ)."""
    negatives_per_query: int = Field(ge=0)
    """Own negatives of each question. 7 (MARCO), 1 (NQ)."""
    negatives_from: Literal["bm25", "collection"]
    """First negatives: the bm25 stage's, or those that came with the collection (MS MARCO's official triples)."""
    negative_depth: int = Field(ge=0)
    """First negatives considered for each question, best first. 0: all."""
    mix: Literal["twice", "pooled"]
    """With mined negatives: each question once with either kind an epoch (authors' code), or both kinds in one pool."""
    share_negatives: int = Field(ge=0)
    """Questions that see each other's passages as further negatives: groups of so many neighbours of a batch. 0: all of
    the batch over all ranks (cross-batch negatives: RocketQA, section 4.2.1); 1: none but a question's own."""
    positives_considered: int = Field(ge=0)
    """Judged passages of a question among which the positive is drawn, first ones first. 0: all."""
    max_queries: int = Field(ge=0)
    """Training questions, the first of a seeded shuffle, so that smaller sets lie within larger ones. 0: all."""
    subset_seed: Seed
    """Seed of that shuffle: the same in all stages, so that they see the same questions."""
    passage_tokens: int = Field(ge=8, le=512)
    """Tokens of a passage's input, title and special tokens included. 128 (MARCO), 256 (NQ)."""
    loss: Literal["contrastive", "soft_labels", "learning_to_rank"]
    """`soft_labels`: a cross-encoder's softmax over the question's own passages as targets (coCondenser, section 5.1).
    `learning_to_rank`: of sigmoid(W [q ; d] + b), to compare with (the ABS paper); it is validated and not searched."""
    temperature: float = Field(gt=0)
    """Divides the inner products. 1 in the papers."""
    teacher_temperature: float = Field(gt=0)
    """Divides the cross-encoder's scores before their softmax. 1."""
    mask_positives: bool
    """Keep what is no negative of a question (its other judged passages, copies of its positives, the question itself)
    out of its softmax where it occurs in the batch."""
    order: Literal["random", "sequential", "abs_greedy", "abs_beam"]
    """Of an epoch's examples: shuffled again each epoch, as the collection has the questions, or batches of questions
    whose positives are hard negatives for each other (Adaptive Batch Scheduling)."""
    abs: AbsConfig
    validation: ValidationConfig
    dropout: float | None = Field(ge=0, lt=1)
    """Dropout of hidden states and attention. None: what the checkpoint's configuration says."""
    seed: Seed
    """Seed of examples; dropout has the optimiser's."""
    optimiser: Optimiser
    """AdamW. Learning rate 5e-6 (MARCO), 1e-5 (NQ)."""

    @model_validator(mode="after")
    def _something_to_tell_apart(self) -> Self:
        if self.negatives_per_query:
            return self
        if self.loss == "soft_labels":
            raise ValueError("soft_labels of a question's own passages need negatives_per_query above 0")
        for field in ("batch_queries", "share_negatives"):
            if getattr(self, field) == 1:
                raise ValueError(f"{field}: 1 with negatives_per_query: 0 leaves a question its positive alone")
        return self


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
