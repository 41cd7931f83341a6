"""A cross-encoder reads question and passage together: too slow for a collection, but better on a short list.

It gives soft labels (coCondenser, section 5.1), denoises negatives, labels more questions (RocketQA, section 4.2), and
reranks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pipeline.advice import Changes
from pipeline.cross_encoder.lengths import Lengths, check_lengths, count_cut, pair_special_tokens
from pipeline.errors import InputError
from pipeline.finetune import training_pools
from pipeline.finetune.config import ExamplesConfig, TrainSubset
from pipeline.modeling.initial import check_vocabulary
from pipeline.modeling.model_files.existing_model import check_own_tokenizer
from pipeline.modeling.model_files.model_config import LONGEST, model_config
from pipeline.modeling.model_files.weight_shapes import check_weights
from pipeline.runtime.planned import Planned, first_model
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization.tokenizer import has_tokenizer

if TYPE_CHECKING:
    from pipeline.cross_encoder.folds import Fold
    from pipeline.data.judged import Judged
    from pipeline.finetune.pools import Pools
    from pipeline.tokenization.token_files import Tokens


class CrossEncoderConfig(ExamplesConfig):
    checkpoint: Path | None
    """A finished cross-encoder, used instead of training: a Hugging Face folder (docs/encoders.md) with one
    label and its tokenizer, such as cross-encoder/ms-marco-MiniLM-L6-v2. null: train."""
    loss: Literal["listwise", "pointwise"]
    """`listwise`: softmax over the positive and the negatives of a question (LCE: Gao, Dai and Callan 2021). It
    determines a question's scores only up to a constant. `pointwise`: a sigmoid for each pair (RocketQA, section 4.1),
    needed for thresholds (denoise, pseudo_labels)."""
    negatives_per_query: int = Field(ge=1)
    """Negatives of each question: the loss compares a positive with them. 7 in LCE's code."""
    question_tokens: int = Field(ge=3, le=LONGEST)
    """Tokens of a question, with the two special tokens around it; a longer one is truncated."""
    title_tokens: int = Field(ge=0, le=LONGEST)
    """Tokens of the title that are kept. 0: passages without titles."""
    passage_tokens: int = Field(ge=3, le=LONGEST)
    """Tokens of title and text together, with the two special tokens around a passage in fine-tuning; longer ones are
    truncated. A pair has one special token fewer (BERT), or as many (RoBERTa)."""
    folds: int | None = Field(default=None, ge=2, le=5)
    """Parts of the training questions: so many cross-encoders are trained, each without one part, and score that part
    for soft labels and denoising. null: one that scores the questions it was trained on."""


def lengths(config: CrossEncoderConfig) -> Lengths:
    """The lengths that a pair is read with; without special tokens, as `pairs.json` has them."""
    return Lengths(config.question_tokens - 2, config.title_tokens, config.passage_tokens - 2)


def missing(config: CrossEncoderConfig) -> list[str]:
    """Returns a line if the stage cannot use its finished cross-encoder; no line if it can, or if there is none."""
    if config.checkpoint is None or not config.checkpoint.exists():
        return []
    try:
        check_is_cross_encoder(config.checkpoint)
    except InputError as error:
        return [f"cross_encoder.checkpoint: {error}"]
    return []


def check_is_cross_encoder(folder: Path) -> None:
    """Raises InputError if the folder holds another kind of model, or one that contradicts itself; loads no weights."""
    model = model_config(folder)
    kinds, labels = model.get("architectures") or [], model.get("id2label") or ()
    if len(labels) != 1 or not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        actual = f"{' '.join(kinds) or 'no architecture'}, {len(labels)} labels"
        raise InputError(f"{folder / 'config.json'}: not a classifier of one label ({actual})")
    check_weights(folder, model)
    if has_tokenizer(folder):
        check_own_tokenizer(folder)


def check_cross_encoder(config: CrossEncoderConfig, tokens: Path, start: Path, tokenizer: Path) -> None:
    """Raises InputError if the stage will fail with these tokens and a start of that shape; called early."""
    check_lengths(config.checkpoint or start, tokens, lengths(config), "cross_encoder")
    if config.checkpoint is not None:
        entries = model_config(config.checkpoint)["vocab_size"]
        check_vocabulary(f"cross_encoder.checkpoint {config.checkpoint}", config.checkpoint, entries, tokenizer)


def check_collection(node: Planned) -> Iterator[InputError]:
    """Questions and passages enough; an early check."""
    yield from training_pools.check_questions(node)
    if node.config.checkpoint is None:
        collection, subset = node.input("collection"), node.shared["train_subset"]
        known = training_pools.judged_questions(collection, "train")
        yield from training_pools.check_room(
            node,
            lambda c: check_training(c, subset, collection.path, known),
            lambda: smaller_settings(node.config, subset, known),
        )


def check_training(config: CrossEncoderConfig, train_subset: TrainSubset, collection: Path, known: "Judged") -> None:
    """Raises InputError if the collection is too small for the training, or for its folds; called early."""
    from pipeline.cross_encoder.folds import check_folds
    from pipeline.finetune.pools import subset

    training_pools.check_training_pools(config, train_subset, known)
    check_folds(collection, subset(known, train_subset.queries, train_subset.seed).queries, config.folds, config.seed)


def smaller_settings(config: CrossEncoderConfig, train_subset: TrainSubset, known: "Judged") -> Iterator[Changes]:
    """Yields changes for a small collection, which `check_training` may accept: with fewer and fewer folds."""
    changes = training_pools.fewer(config, train_subset, known)
    yield changes
    if config.folds is not None:
        yield from ({**changes, "folds": folds} for folds in (*range(config.folds - 1, 1, -1), None))


def check_model(node: Planned) -> None:
    """Room for pairs of these lengths; an early check."""
    start, tokens = node.config.checkpoint or first_model(node), node.input("tokens")
    if start is not None and tokens.artifact is not None:
        check_cross_encoder(node.config, tokens.path, start, tokens.input("tokenizer").path)


def cross_encoder(
    config: CrossEncoderConfig,
    train_subset: TrainSubset,
    collection: Path,
    tokens: Path,
    start: Path,
    bm25: Path,
    mined: Path | None,
    work: Work,
    fold: "Fold | None" = None,
) -> Metrics:
    """Trains from checkpoint `start` and writes a checkpoint of one logit, with `pairs.json`: the lengths it reads.

    Examples are as in fine-tuning. `fold`: its questions are left out, and `fold.json` says so. `tokens`: by the
    tokenizer in `start`. With `config.checkpoint`, that model passes through; of `start` only the tokenizer is read,
    which must have the model's vocabulary. The metrics count the negatives per epoch that were drawn from the full
    collection, the listed negatives that were dropped (pipeline/data/barred.py; also those of a fold's questions), and
    the truncated questions and passages.
    Raises InputError if the model does not fit the tokens or lengths, or if there is nothing to train on.
    """
    from pipeline.cross_encoder.folds import without_fold, write_fold
    from pipeline.data.barred import Dropped
    from pipeline.finetune.pools import save_pools
    from pipeline.runtime.gpu_ranks import fed_ranks
    from pipeline.runtime.launch import launch, one_process
    from pipeline.tokenization.token_files import Tokens

    work.checkpoints.mkdir(parents=True, exist_ok=True)
    check_cross_encoder(config, tokens, start, start)
    arguments = {
        "config": config.model_dump(mode="json"),
        "start": str(start),
        "out": str(work.out),
    }
    if config.checkpoint is not None:
        machine = one_process(work.machine)
        return launch("pipeline.cross_encoder.train:take", arguments, machine, work.progress, work.checkpoints)
    dropped = Dropped()
    all_pools = training_pools.read_training_pools(config, train_subset, collection, bm25, mined, dropped=dropped)
    if fold is not None:
        all_pools = without_fold(all_pools, collection, fold)
    save_pools(all_pools, work.checkpoints / "pools.npz")
    machine = fed_ranks(work.machine, lambda: update_tokens(config, Tokens.open(tokens), all_pools))
    arguments |= {
        "tokens": str(tokens),
        "pools": str(work.checkpoints / "pools.npz"),
        "checkpoints": str(work.checkpoints),
        "machine": machine.model_dump(mode="json"),
    }
    result = launch(
        "pipeline.cross_encoder.train:train_cross_encoder", arguments, machine, work.progress, work.checkpoints
    )
    if fold is not None:
        write_fold(fold, work.out)
    cut = count_cut(Tokens.open(tokens), all_pools.queries, all_pools.listed(), lengths(config))
    counts = training_pools.pool_counts(all_pools, config.negatives_per_query, dropped)
    return result | counts | cut


def update_tokens(config: CrossEncoderConfig, data: "Tokens", pools: "Pools") -> float:
    """Returns about the mean tokens of an update, over all ranks."""
    import numpy as np

    from pipeline.finetune.examples import mean_batch

    own = lengths(config)
    passage_N = np.minimum(data.titles.lengths, own.title_tokens) + data.passages.lengths
    question = np.minimum(data.queries.lengths[pools.queries], own.question_tokens).mean()
    pair = float(question + np.minimum(passage_N, own.passage_tokens).mean()) + pair_special_tokens("bert")
    return mean_batch(pools, config.batch_queries) * (1 + config.negatives_per_query) * pair
