"""A cross-encoder: it reads question and passage together, too slow for a collection and better on a short list.

It gives soft labels (coCondenser, section 5.1), denoises negatives and labels more questions (RocketQA, section 4.2),
and reranks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.cross_encoder.lengths import Lengths, check_lengths, count_cut
from pipeline.errors import InputError
from pipeline.finetune import training_pools
from pipeline.modeling.initial import check_vocabulary
from pipeline.modeling.model_config import model_config
from pipeline.runtime.planned import Planned, first_model
from pipeline.runtime.work import Metrics, Work
from pipeline.training.loop import Optimiser


class CrossEncoderConfig(Config):
    checkpoint: Path | None
    """A finished cross-encoder, taken instead of training: a Hugging Face folder of BERT or RoBERTa type with one
    label, such as cross-encoder/ms-marco-MiniLM-L6-v2. Null: train."""
    loss: Literal["listwise", "pointwise"]
    """`listwise`: softmax over the positive and the negatives of a question (LCE: Gao, Dai and Callan 2021). It leaves
    a question's scores open up to a constant. `pointwise`: a sigmoid for each pair (RocketQA, section 4.1), which
    thresholds need (denoise, pseudo)."""
    epochs: int = Field(ge=1)
    """Passes over the training examples. 2 in LCE's code."""
    batch_queries: int = Field(ge=1)
    """Questions in an update, over all ranks."""
    negatives_per_query: int = Field(ge=1)
    """Negatives of each question. 7 in LCE's code."""
    negatives_from: Literal["bm25", "collection"]
    """First negatives: the bm25 stage's, or those that came with the collection."""
    negative_depth: int = Field(ge=0)
    """First negatives considered for each question, best first. 0: all."""
    mix: Literal["twice", "pooled"]
    """With mined negatives: each question once with either kind an epoch, or both kinds in one pool."""
    positives_considered: int = Field(ge=0)
    """Judged passages of a question among which the positive is drawn, first ones first. 0: all."""
    max_queries: int = Field(ge=0)
    """Training questions, the first of a seeded shuffle, so that smaller sets lie within larger ones. 0: all."""
    subset_seed: Seed
    """Seed of that shuffle, as in fine-tuning."""
    question_tokens: int = Field(ge=1, le=512)
    """Tokens of a question, without special tokens; the rest is cut."""
    title_tokens: int = Field(ge=0, le=512)
    """Tokens of the title that are kept. 0: passages without titles."""
    passage_tokens: int = Field(ge=1, le=512)
    """Tokens of title and text together, without special tokens; the rest is cut."""
    dropout: float | None = Field(ge=0, lt=1)
    """Dropout of hidden states and attention. None: what the checkpoint's configuration says."""
    seed: Seed
    """Seed of examples and the new head's weights; dropout has the optimiser's."""
    optimiser: Optimiser
    """AdamW. Learning rate 1e-5 in LCE's code."""


def lengths(config: CrossEncoderConfig) -> Lengths:
    return Lengths(config.question_tokens, config.title_tokens, config.passage_tokens)


def missing(config: CrossEncoderConfig) -> list[str]:
    """What is wrong with the finished cross-encoder, in a line; nothing where it will do or there is none."""
    if config.checkpoint is None or not config.checkpoint.exists():
        return []
    try:
        found = model_config(config.checkpoint)
    except InputError as error:
        return [f"cross_encoder.checkpoint: {error}"]
    kinds, labels = found.get("architectures") or [], found.get("id2label") or ()
    if len(labels) != 1 or not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        said = f"{' '.join(kinds) or 'no architecture'}, {len(labels)} labels"
        return [f"cross_encoder.checkpoint: {config.checkpoint / 'config.json'}: no classifier of one label ({said})"]
    return []


def check_cross_encoder(config: CrossEncoderConfig, tokens: Path, start: Path, tokenizer: Path) -> None:
    """InputError where the stage is bound to fail with these tokens and a start of that shape: asked early, in time."""
    check_lengths(config.checkpoint or start, tokens, lengths(config), "cross_encoder")
    if config.checkpoint is not None:
        entries = model_config(config.checkpoint)["vocab_size"]
        check_vocabulary(f"cross_encoder.checkpoint {config.checkpoint}", config.checkpoint, entries, tokenizer)


def check_collection(node: Planned) -> Iterator[InputError]:
    """Questions and passages enough; an early check."""
    yield from training_pools.check_questions(node)
    if node.config.checkpoint is None:
        known = training_pools.judged(node.input("collection"), "train")
        yield from training_pools.check_room(
            node, lambda c: training_pools.check(c, known), lambda: [training_pools.fewer(node.config, known)]
        )


def check_model(node: Planned) -> None:
    """Room for pairs of these lengths; an early check."""
    start, tokens = first_model(node), node.input("tokens")
    if start is not None:
        check_cross_encoder(node.config, tokens.path, start, tokens.input("tokenizer").path)


def cross_encoder(
    config: CrossEncoderConfig,
    collection: Path,
    tokens: Path,
    start: Path,
    bm25: Path,
    mined: Path | None,
    work: Work,
) -> Metrics:
    """Train from checkpoint `start` and write a checkpoint of one logit, with `pairs.json`: the lengths it reads.

    Examples as in fine-tuning. With `config.checkpoint` that one passes through, if its vocabulary is that of `start`.
    The metrics count the negatives an epoch that were drawn from the whole collection, what of the negatives listed
    was dropped (pipeline/data/barred.py), and the questions and passages that were cut.
    Raises InputError where the model does not fit the tokens or lengths, or there is nothing to train on.
    """
    from pipeline.data.barred import Dropped
    from pipeline.finetune.pools import save_pools
    from pipeline.runtime.launch import launch
    from pipeline.tokenization.token_files import Tokens

    work.checkpoints.mkdir(parents=True, exist_ok=True)
    check_cross_encoder(config, tokens, start, start)
    arguments = {
        "config": config.model_dump(mode="json"),
        "start": str(start),
        "out": str(work.out),
    }
    if config.checkpoint is not None:
        machine = work.machine.model_copy(update={"ranks": 1, "torchrun": []})
        return launch("pipeline.cross_encoder.train:take", arguments, machine, work.progress, work.checkpoints)
    dropped = Dropped()
    drawn_from = training_pools.read(config, collection, bm25, mined, dropped=dropped)
    save_pools(drawn_from, work.checkpoints / "pools.npz")
    arguments |= {
        "tokens": str(tokens),
        "pools": str(work.checkpoints / "pools.npz"),
        "checkpoints": str(work.checkpoints),
        "machine": work.machine.model_dump(mode="json"),
    }
    result = launch("pipeline.cross_encoder.train:train", arguments, work.machine, work.progress, work.checkpoints)
    cut = count_cut(Tokens.open(tokens), drawn_from.queries, drawn_from.listed(), lengths(config))
    counts = training_pools.counts(drawn_from, config.negatives_per_query, dropped)
    return result | counts | cut
