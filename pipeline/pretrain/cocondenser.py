"""coCondenser pre-training: Condenser's loss and a contrastive loss between spans of a document (coCondenser,
section 3.2)."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from pipeline.advice import Changes
from pipeline.errors import InputError
from pipeline.pretrain.config import PretrainConfig, updates
from pipeline.pretrain.sampling import batches_in, sampler
from pipeline.pretrain.spans import long_enough, long_passages, spans, spans_of_passages
from pipeline.pretrain.start import check_inputs, check_start, check_tokens, launch_pretraining, unfit
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Machine, Metrics, Work
from pipeline.tokenization.token_files import Tokens
from pipeline.training.loop import exactly_one

if TYPE_CHECKING:
    from pipeline.modeling.packing import Batch
    from pipeline.pretrain.train import Training


class CocondenserConfig(PretrainConfig):
    """An epoch of the budget is a pass over the documents. 8 in the authors' code."""

    objective: Literal["cocondenser", "contrastive_only"]
    """`contrastive_only` omits the masked language modelling (coCondenser, table 4); inputs are masked in both."""
    batch_documents: int | None = Field(ge=2)
    """Documents (pairs of spans) in an update, over all ranks. 2,048 (coCondenser, section 4). Either this or
    `batch_tokens`."""
    batch_tokens: int | None = Field(ge=1)
    """Tokens in an update, over all ranks, special tokens included. Either this or `batch_documents`."""
    corpus: Literal["pretraining", "collection"]
    """The text to train on: the collection (coCondenser, section 3.2), or the recipe's general text, if it has one."""
    span_min: int = Field(ge=1)
    """Documents of fewer than twice as many tokens, without special tokens, are left out."""
    span_max: int = Field(ge=1)
    """Longest span in tokens, without special tokens: a document of n tokens gives two of min(span_max, n // 2).
    126 in the paper (128 with special tokens); its author later recommended about 80."""
    spans_from: Literal["document", "passages"]
    """`passages`: if a document has two passages of span_min tokens, the two spans come from different passages, so
    that they share fewer words. Otherwise from anywhere in the document (coCondenser, section 3.2)."""
    random_lengths: bool
    """Each span has a random length, from span_min to the limit of `span_max`. With equal lengths, as in the paper,
    the length identifies the pair: a small model from scratch may learn to compare only lengths."""
    mask_fraction: float = Field(gt=0, lt=1)
    """Share of a span's tokens that is masked, by whole words. 0.15 in the authors' code."""
    skip_from: int = Field(ge=0)
    """Backbone layer whose output goes to the head (0: the embeddings): the same as in the condenser stage."""

    @model_validator(mode="after")
    def _consistent(self) -> "CocondenserConfig":
        exactly_one(self, "batch_documents", "batch_tokens")
        if self.span_max < self.span_min:
            raise ValueError(f"span_max ({self.span_max}) is below span_min ({self.span_min})")
        if self.batch_tokens is not None and self.batch_tokens < 4 * (self.span_max + 2):
            raise ValueError(
                f"batch_tokens ({self.batch_tokens}) does not hold two documents of span_max: "
                f"raise it to {4 * (self.span_max + 2)}, or set batch_documents instead"
            )
        return self


class Documents(NamedTuple):
    """The N documents that hold two spans."""

    number_N: np.ndarray
    """Among all documents."""
    begin_N: np.ndarray
    length_N: np.ndarray
    """In tokens of the flat text, without special tokens."""
    tokens_N: np.ndarray
    """Mean tokens of a pair of spans, special tokens included (as if both came from anywhere in the document)."""
    size_N: np.ndarray
    """Its size in a batch: its tokens, or 1 if batches are counted in documents."""


def long_documents(config: CocondenserConfig, data: Tokens) -> Documents:
    """Returns the documents that hold two spans. Raises InputError if there is none."""
    edges = data.passages.offsets[data.doc_offsets]
    number_N = np.flatnonzero(long_enough(np.diff(edges), config.span_min))
    if not len(number_N):
        longest = int(np.diff(edges).max(initial=0))
        raise InputError(
            f"cocondenser.span_min: no document holds two spans of {config.span_min} tokens, the longest has {longest} "
            "in all"
        )
    length_N = np.diff(edges)[number_N]
    longest_N = np.minimum(config.span_max, length_N // 2)
    shortest_N = np.minimum(config.span_min, longest_N) if config.random_lengths else longest_N
    tokens_N = shortest_N + longest_N + 4
    size_N = tokens_N if config.batch_tokens else np.ones_like(tokens_N)
    return Documents(number_N, edges[number_N], length_N, tokens_N, size_N)


def pair_drawer(
    config: CocondenserConfig, data: Tokens, documents: Documents
) -> Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns draw(row_D, step): begin, length and number of each span of documents `row_D`, each [2 D], in pairs."""
    span_min = config.span_min if config.random_lengths else config.span_max
    passages = None
    if config.spans_from == "passages":
        passages = long_passages(data.passages.offsets, data.doc_offsets, config.span_min)
    limits = span_min, config.span_max, config.seed

    def draw(row_D: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        number_D = documents.number_N[row_D]
        begin_S, length_S = spans(documents.begin_N[row_D], documents.length_N[row_D], number_D, *limits, step)
        if passages is not None:
            several_D, begins, lengths = spans_of_passages(passages, number_D, *limits, step)
            begin_S[several_D.repeat(2)], length_S[several_D.repeat(2)] = begins, lengths
        return begin_S, length_S, (2 * number_D[:, None] + np.arange(2)).ravel()

    return draw


def batch_size(config: CocondenserConfig) -> tuple[int, str]:
    """Returns (size of a batch, the field that sets it)."""
    if config.batch_tokens is not None:
        return config.batch_tokens, "cocondenser.batch_tokens"
    return config.batch_documents or 0, "cocondenser.batch_documents"


def check_cocondenser(config: CocondenserConfig, tokens: Path, start: Path | None) -> None:
    """Raises InputError if the stage will fail with these tokens and a start of that shape; called early.

    `start`: None if it does not exist yet. If there are too few tokens, the error proposes values that fit.
    """
    if start is not None:
        longest = config.span_max + 2
        check_start("cocondenser", config.checkpoint or start, tokens, config.skip_from, longest, config.objective)
    check_tokens("cocondenser", config, tokens, check_batch, smaller)


def check_planned(node: Planned) -> None:
    """An early check."""
    check_inputs(node, check_cocondenser)


def check_batch(config: CocondenserConfig, data: Tokens) -> None:
    """Raises InputError if an epoch has no full batch. Reads only lengths: fast for a collection of any size."""
    batches_in(long_documents(config, data).size_N, *batch_size(config))


def smaller(config: CocondenserConfig, data: Tokens) -> Iterator[Changes]:
    """Yields changes for a small collection: shorter spans, which two documents hold; at most four batches per epoch,
    first counted in tokens, then in documents; no training.
    """
    length_N = np.sort(np.diff(data.passages.offsets[data.doc_offsets]))[::-1]
    span_min = min(config.span_min, int(length_N[1]) // 2 if len(length_N) > 1 else 0)
    if span_min:
        spans = {} if span_min == config.span_min else {"span_min": span_min}
        documents = long_documents(config.model_copy(update=spans), data)
        if spans:
            yield spans
        if config.batch_tokens is not None:
            yield spans | {"batch_tokens": max(4 * (config.span_max + 2), int(documents.size_N.sum()) // 4)}
        yield spans | {"batch_tokens": None, "batch_documents": max(2, len(documents.number_N) // 4)}
    yield {"budget": None}


def missing(config: CocondenserConfig) -> list[str]:
    """Returns a line if the stage cannot use its finished checkpoint; no line if it can, or if there is none."""
    return unfit("cocondenser", config.checkpoint, config.skip_from, config.span_max + 2, config.objective, False)


def cocondenser(config: CocondenserConfig, tokens: Path, start: Path, work: Work) -> Metrics:
    """Trains the checkpoint `start`, which must hold a head, on pairs of spans; writes a checkpoint with its head.

    With `config.checkpoint`, that checkpoint passes through unchanged if it fits the tokens; it may lack a head.
    """
    check_cocondenser(config, tokens, start)
    prepare = "pipeline.pretrain.cocondenser:prepare_cocondenser"
    return launch_pretraining(prepare, config, tokens, start, work, partial(update_tokens, config))


def update_tokens(config: CocondenserConfig, data: Tokens) -> float:
    """Returns the mean tokens of an update, over all ranks. Reads only lengths."""
    if config.batch_tokens is not None:
        return float(config.batch_tokens)
    return (config.batch_documents or 0) * float(long_documents(config, data).tokens_N.mean())


def most_tokens(config: CocondenserConfig) -> int:
    """Returns a number of tokens that no update exceeds, over all ranks."""
    pair = 2 * (config.span_max + 2)
    if config.batch_documents is not None:
        return config.batch_documents * pair
    # A batch begins its last document within its size. A pair of random lengths counts with the mean of its shortest
    # and longest length, which is at least half of the longest.
    return ((config.batch_tokens or 0) + pair) * (2 if config.random_lengths else 1)


def prepare_cocondenser(config: dict[str, Any], start: Path, tokens: Path, machine: Machine, device: str) -> "Training":
    """Prepares the training, on one rank (pipeline/pretrain/train.py)."""
    from pipeline.modeling.checkpoint import head_objective, with_own_head
    from pipeline.pretrain.masking import masked_batch
    from pipeline.pretrain.objectives import objective
    from pipeline.pretrain.step import update
    from pipeline.pretrain.train import Training
    from pipeline.training.memory import resolve_auto

    own = CocondenserConfig.model_validate(config)
    if not own.trains:
        return Training(own, with_own_head(start, None).to(device), head_objective(start))

    module = with_own_head(start, "condenser").to(device)
    machine = resolve_auto(machine, device, module["lm"].config, module, most_tokens(own))
    data = Tokens.open(tokens)
    documents = long_documents(own, data)
    draw = pair_drawer(own, data, documents)
    size, field = batch_size(own)
    batches, rows = sampler(documents.size_N, size, own.seed, field)

    goal = objective(own.objective)
    if not goal.names:  # weight decay must not change weights without a loss
        module.requires_grad_(False)
        module["lm"].base_model.requires_grad_(True)

    def prepare(i: int) -> "Batch":
        sequences, fraction = draw(rows(i), i), own.mask_fraction
        return masked_batch(data.passages, *sequences, fraction, own.seed, i, data.specials, machine, device)

    def step(i: int, batch: "Batch") -> dict[str, Any]:
        return update(
            module,
            batch,
            goal,
            skip_from=own.skip_from,
            pairs=True,
            cache=machine.gradient_cache,
            key=(own.seed, i),
            device=device,
        )

    steps = updates(own, batches, float(documents.tokens_N.sum()) / batches)
    total = len(data.doc_offsets) - 1
    counts = {"documents": total, "documents_too_short": total - len(documents.number_N)}
    return Training(own, module, "condenser", steps, prepare, step, counts)
