"""The start of a pre-training stage: its model and its tokens are checked before any work. Imports nothing heavy."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.advice import Changes, check_fits
from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.modeling.model_files.model_config import input_limit, is_packed, model_config
from pipeline.modeling.model_files.weight_shapes import check_weights
from pipeline.pretrain.config import PretrainConfig
from pipeline.runtime.planned import Planned, first_model
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization.token_files import Tokens

LARGE = 10_000_000
"""Tokens of a collection that surely holds a batch: a check that reads all the text skips larger collections."""


OF_LAST_STATES = ("mlm", "contrastive_only", "ict")
"""Objectives that read only the last layer's states."""


def check_start(stage: str, start: Path, tokens: Path, skip_from: int, longest: int, objective: str) -> None:
    """Raises InputError, which names the stage's field, if model, tokens and configuration do not fit together.

    `longest`: tokens of the longest input, special tokens included.
    """
    vocabulary = check_model(stage, start, skip_from, longest, objective)["vocab_size"]
    entries = read_json(tokens / "specials.json", "vocab_size")["vocab_size"]
    if entries > vocabulary:
        raise InputError(f"{start}: the model has {vocabulary} tokens, but the tokenizer has {entries}")


def check_objective(stage: str, model: Mapping[str, Any], objective: str) -> None:
    """Raises InputError if the objective needs layers that the model's type has none of. `model`: its config.json."""
    if objective not in OF_LAST_STATES and not is_packed(model):
        raise InputError(
            f"{stage}.objective: {objective} needs packed layers, which model_type {model['model_type']!r} has not: "
            f"only {', '.join(OF_LAST_STATES)} (docs/encoders.md)"
        )


def check_type(node: Planned) -> None:
    """The type of the initial model, before the run."""
    start = first_model(node)
    if start is not None and node.config.trains:
        check_objective(node.stage, model_config(start), node.config.objective)


def check_tokens(
    stage: str,
    config: Any,
    tokens: Path,
    check: Callable[[Any, Tokens], object],
    smaller: Callable[[Any, Tokens], Iterable[Changes]],
) -> None:
    """Raises InputError, with the first `smaller` values that fit, if `check` refuses these tokens; called early.

    Checks nothing if nothing is trained.
    """
    if config.trains:
        data = Tokens.open(tokens)
        check_fits(stage, config, lambda c: c.budget is None or check(c, data), lambda: smaller(config, data))


def check_inputs(node: Planned, check: Callable[[Any, Path, Path | None], object]) -> None:
    """The head of the initial model, and `check(config, tokens, start)`; an early check."""
    start, tokens = node.input("start"), node.input("tokens").artifact
    if node.config.checkpoint is None and start.stage == "initial" and start.metrics.get("mlm_head") == "none":
        raise InputError(
            f"{node.name}: the initial model has no head for masked language modelling: set "
            "initial.new_mlm_head to true, or the budget of ict, condenser and cocondenser to null"
        )
    if tokens is not None:
        check(node.config, tokens, first_model(node))


def check_model(stage: str, start: Path, skip_from: int, longest: int, objective: str) -> dict[str, Any]:
    """As `check_start`, without tokens, so that it can run before a run. Returns the model's config.json."""
    model = model_config(start)
    layers, room = model["num_hidden_layers"], input_limit(model)
    check_objective(stage, model, objective)
    if skip_from >= layers:
        raise InputError(f"{stage}.skip_from: {skip_from} is outside the early layers of a model of {layers}")
    if longest > room:
        raise InputError(f"{stage}: inputs of {longest} tokens, but the model has {room} positions")
    return model


def unfit(
    stage: str, checkpoint: Path | None, skip_from: int, longest: int, objective: str, needs_head: bool
) -> list[str]:
    """Returns a line if a stage cannot use its finished checkpoint; no line if it can, or if there is none.

    Another check reports a path that does not exist.
    """
    if checkpoint is None or not checkpoint.exists():
        return []
    try:
        check_weights(checkpoint, check_model(stage, checkpoint, skip_from, longest, objective))
    except InputError as error:
        return [f"{stage}.checkpoint: {error}"]
    head = checkpoint / "head.safetensors"
    return [f"{stage}.checkpoint: {head}: missing"] if needs_head and not head.is_file() else []


def launch_pretraining(
    prepare: str,
    config: PretrainConfig,
    tokens: Path,
    start: Path,
    work: Work,
    update_tokens: Callable[[Tokens], float],
) -> Metrics:
    """Runs a pre-training in child processes, from its finished checkpoint or from `start`.

    `prepare`: `module:name` of the function that prepares it (pipeline/pretrain/train.py). `update_tokens`: returns
    about the mean tokens of an update.
    """
    from pipeline.runtime.gpu_ranks import fed_ranks
    from pipeline.runtime.launch import launch

    machine = work.machine
    if config.trains:
        machine = fed_ranks(machine, lambda: update_tokens(Tokens.open(tokens)))

    arguments = {
        "prepare": prepare,
        "config": config.model_dump(mode="json"),
        "tokens": str(tokens),
        "start": str(config.checkpoint or start),
        "tokenizer": str(start),
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "machine": machine.model_dump(mode="json"),
    }
    return launch("pipeline.pretrain.train:train_objective", arguments, machine, work.progress, work.checkpoints)
