"""Fine-tuning a bi-encoder on questions, their judged passages and negatives (coCondenser, section 3.3)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.training import Optimiser
from pipeline.work import Metrics, Progress, Work

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pipeline.biencoder import Encoder
    from pipeline.ragged import Specials


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
    positives_considered: int = Field(ge=0)
    """Judged passages of a question among which the positive is drawn, first ones first. 0: all."""
    max_queries: int = Field(ge=0)
    """Training questions, the first of a seeded shuffle, so that smaller sets lie within larger ones. 0: all."""
    title_tokens: int = Field(ge=0)
    """Tokens of the title that are kept. 0: passages without titles."""
    passage_tokens: int = Field(ge=8, le=512)
    """Tokens of a passage's input, title and special tokens included. 128 (MARCO), 256 (NQ)."""
    question_tokens: int = Field(ge=4, le=512)
    """Tokens of a question's input, special tokens included. 32."""
    pooling: Literal["cls", "mean"]
    """What of the last layer is the vector. CLS in the papers."""
    tied: bool
    """One encoder for questions and passages (MARCO), or two that start equal (DPR's set-up)."""
    temperature: float = Field(gt=0)
    """Divides the inner products. 1 in the papers."""
    mask_positives: bool
    """Keep the other judged passages of a question out of its softmax where they occur in the batch."""
    dropout: float | None = Field(ge=0, lt=1)
    """Dropout of hidden states and attention. None: what the checkpoint's configuration says."""
    seed: int = Field(ge=0)
    """Seed of examples and subsets; dropout has the optimiser's."""
    optimiser: Optimiser
    """AdamW. Learning rate 5e-6 (MARCO), 1e-5 (NQ)."""


def finetune(
    config: FinetuneConfig,
    collection: Path,
    tokens: Path,
    start: Path,
    bm25: Path,
    mined: Path | None,
    work: Work,
) -> Metrics:
    """Train from checkpoint `start` and write a checkpoint (`query/` and `passage/` where untied).

    `bm25` and `mined` hold a `negatives.parquet`; without `mined` this is stage 1. The metrics count the negatives an
    epoch that were drawn from the whole collection because a pool was too small, and the questions that were cut.
    Raises InputError where no training question has a judged passage, before anything is trained.
    """
    from pipeline import examples
    from pipeline.launch import launch
    from pipeline.ragged import Tokens

    first = (collection if config.negatives_from == "collection" else bm25) / "negatives.parquet"
    pools = examples.read_pools(
        collection,
        first,
        config.negative_depth,
        mined / "negatives.parquet" if mined else None,
        config.mix,
        config.max_queries,
        config.seed,
    )
    if int(pools.judged.lengths.max()) + config.negatives_per_query > pools.passages:
        raise InputError(
            f"negatives_per_query: {config.negatives_per_query} asked for, but a question has all but "
            f"{pools.passages - int(pools.judged.lengths.max())} of the {pools.passages} passages as positives"
        )
    work.checkpoints.mkdir(parents=True, exist_ok=True)
    examples.save_pools(pools, work.checkpoints / "pools.npz")
    arguments = {
        "config": config.model_dump(mode="json"),
        "tokens": str(tokens),
        "start": str(start),
        "pools": str(work.checkpoints / "pools.npz"),
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "checkpoint_minutes": work.machine.checkpoint_minutes,
        "token_budget": work.machine.token_budget,
        "chunk": work.machine.chunk_spans,
    }
    result = launch("pipeline.finetune:train", arguments, work.machine, work.progress, work.checkpoints)
    lengths = Tokens.open(tokens).queries.lengths[pools.queries]
    return result | {
        "queries": len(pools.queries),
        "examples_per_epoch": examples.epoch_size(pools),
        "negatives_filled": examples.filled(pools, config.negatives_per_query),
        "questions_cut": int((lengths > config.question_tokens - 2).sum()),
    }


def train(
    *,
    progress: Progress,
    device: str,
    config: dict[str, Any],
    tokens: str,
    start: str,
    pools: str,
    out: str,
    checkpoints: str,
    checkpoint_minutes: float,
    token_budget: int,
    chunk: int,
) -> Metrics:
    """What each rank runs. Rank r takes the r-th run of a batch's questions; rank 0 writes the checkpoint."""
    import numpy as np
    import torch

    from pipeline import examples, training
    from pipeline.biencoder import passage_rows, question_rows, represent
    from pipeline.distributed import rank, world
    from pipeline.inbatch import backward
    from pipeline.ragged import Tokens

    settings = FinetuneConfig(**config)
    artifact, drawn_from = Tokens.open(Path(tokens)), examples.load_pools(Path(pools))
    total = settings.epochs * examples.epoch_size(drawn_from)
    steps = -(-total // settings.batch_queries)
    questions, passages = starting_encoders(Path(start), settings, artifact.specials, device)
    module = torch.nn.ModuleList([questions.model] if settings.tied else [questions.model, passages.model])
    per_question = 1 + settings.negatives_per_query

    def step(i: int) -> dict[str, Any]:
        batch = examples.batch(
            drawn_from,
            *examples.bounds(i, steps, total),
            settings.negatives_per_query,
            settings.positives_considered,
            settings.seed,
        )
        shares = np.arange(world() + 1) * len(batch.queries_Q) // world()
        first, last = shares[rank()], shares[rank() + 1]
        rows = (
            question_rows(artifact, batch.queries_Q[first:last], settings.question_tokens),
            passage_rows(
                artifact, batch.passages_QN[first:last].ravel(), settings.title_tokens, settings.passage_tokens
            ),
        )

        def encode(side: int, begin: int, end: int) -> torch.Tensor:
            # The place in the whole batch is the key, so that neither ranks nor a second pass change dropout.
            training.seed_dropout(settings.optimiser.seed, i, side, int(first) * (per_question if side else 1) + begin)
            with training.autocast(device):
                return represent((questions, passages)[side], rows[side][begin:end], token_budget)

        value = backward(
            lambda begin, end: encode(0, begin, end),
            lambda begin, end: encode(1, begin, end),
            shares.tolist(),
            per_question,
            rank(),
            batch.excluded_QP if settings.mask_positives else np.zeros_like(batch.excluded_QP),
            settings.temperature,
            chunk,
        )
        return {"loss": value / world(), "tokens": float(sum(len(row) for side in rows for row in side))}

    history = training.train(
        module, step, steps, settings.optimiser, Path(checkpoints), checkpoint_minutes, progress, device
    )
    if rank() == 0:
        write_checkpoint(Path(out), questions.model, passages.model, settings, Path(start), history)
    return training.summary(history)


def starting_encoders(
    start: Path, settings: FinetuneConfig, specials: "Specials", device: str
) -> "tuple[Encoder, Encoder]":
    """The (question, passage) encoders that training starts from; the same object where tied."""
    import copy

    import torch

    from pipeline.biencoder import Encoder, check_fits, load_encoders

    loaded = load_encoders(start)
    if settings.tied and loaded[0] is not loaded[1]:
        raise InputError(f"tied: {start} holds two encoders (`query/` and `passage/`); set `tied: false`")
    check_fits(loaded[0], specials, start, "question_tokens", settings.question_tokens)
    check_fits(loaded[1], specials, start, "passage_tokens", settings.passage_tokens)
    questions = Encoder(loaded[0].model, settings.pooling).to(device)
    passages = questions if settings.tied else Encoder(copy.deepcopy(loaded[1].model), settings.pooling).to(device)
    for encoder in (questions, passages):
        for layer in encoder.model.modules():
            if settings.dropout is not None and isinstance(layer, torch.nn.Dropout):
                layer.p = settings.dropout
    return questions, passages


def write_checkpoint(
    out: Path,
    questions: "PreTrainedModel",
    passages: "PreTrainedModel",
    settings: FinetuneConfig,
    start: Path,
    history: list[dict[str, float]],
) -> None:
    """Write the trained model, or both under `query/` and `passage/`, with the tokenizer of `start`."""
    from pipeline.checkpoint import save_checkpoint

    pairs = [(out, questions)] if settings.tied else [(out / "query", questions), (out / "passage", passages)]
    for folder, model in pairs:
        tokenizer = start / folder.name if (start / folder.name).is_dir() and not settings.tied else start
        save_checkpoint(folder, model, tokenizer, history=history, pooling=settings.pooling)
