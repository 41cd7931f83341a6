"""The start of a pre-training stage: its model is checked before any work. Imports nothing heavy."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.advice import Changes, check_fits
from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.runtime.planned import Planned, first_model
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization.token_files import Tokens

TYPES = ("bert", "roberta")
SIZES = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
LARGE = 10_000_000
"""Tokens of a collection that surely holds a batch: a check that reads all the text skips larger collections."""


def check_start(stage: str, start: Path, tokens: Path, skip_from: int, longest: int) -> None:
    """Raises InputError, which names the stage's field, if model, tokens and configuration do not fit together.

    `longest`: tokens of the longest input, special tokens included.
    """
    vocabulary = check_model(stage, start, skip_from, longest)["vocab_size"]
    entries = read_json(tokens / "specials.json", "vocab_size")["vocab_size"]
    if entries > vocabulary:
        raise InputError(f"{start}: the model has {vocabulary} tokens, but the tokenizer has {entries}")


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
    if config.checkpoint is None and config.steps != 0:
        data = Tokens.open(tokens)
        check_fits(stage, config, lambda c: c.steps == 0 or check(c, data), lambda: smaller(config, data))


def check_inputs(node: Planned, check: Callable[[Any, Path, Path | None], object]) -> None:
    """The head of the initial model, and `check(config, tokens, start)`; an early check."""
    start, tokens = node.input("start"), node.input("tokens").artifact
    if node.config.checkpoint is None and start.stage == "initial" and start.metrics.get("mlm_head") == "none":
        raise InputError(
            f"{node.name}: the initial model has no head for masked language modelling: set "
            "initial.new_mlm_head to true, or the steps of ict, condenser and cocondenser to 0 (and their epochs "
            "and tokens to null)"
        )
    if tokens is not None:
        check(node.config, tokens, first_model(node))


def check_model(stage: str, start: Path, skip_from: int, longest: int) -> dict[str, Any]:
    """As `check_start`, without tokens, so that it can run before a run. Returns the model's config.json."""
    model = model_config(start)
    layers, room = model["num_hidden_layers"], positions(model)
    if skip_from >= layers:
        raise InputError(f"{stage}.skip_from: {skip_from} is outside the early layers of a model of {layers}")
    if longest > room:
        raise InputError(f"{stage}: inputs of {longest} tokens, but the model has {room} positions")
    return model


def unfit(stage: str, checkpoint: Path | None, skip_from: int, longest: int, needs_head: bool) -> list[str]:
    """Returns a line if a stage cannot use its finished checkpoint; no line if it can, or if there is none.

    Another check reports a path that does not exist.
    """
    if checkpoint is None or not checkpoint.exists():
        return []
    try:
        check_model(stage, checkpoint, skip_from, longest)
    except InputError as error:
        return [f"{stage}.checkpoint: {error}"]
    if not any(checkpoint.glob("model*.safetensors")):
        return [f"{stage}.checkpoint: {checkpoint}: no model.safetensors"]
    head = checkpoint / "head.safetensors"
    return [f"{stage}.checkpoint: {head}: missing"] if needs_head and not head.is_file() else []


def launch_pretraining(function: str, config: Any, tokens: Path, start: Path, work: Work) -> Metrics:
    """Runs a pre-training stage's `function` in its child processes, from its finished checkpoint or from `start`."""
    from pipeline.runtime.launch import launch

    arguments = {
        "config": config.model_dump(mode="json"),
        "tokens": str(tokens),
        "start": str(config.checkpoint or start),
        "tokenizer": str(start),
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "machine": work.machine.model_dump(mode="json"),
    }
    return launch(function, arguments, work.machine, work.progress, work.checkpoints)


def model_config(folder: Path) -> dict[str, Any]:
    """Reads config.json of a checkpoint. Raises InputError if it is missing, not of `TYPES`, or lacks a size."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
        model_type = config["model_type"]
    except OSError as error:
        raise InputError(f"{path}: missing; a checkpoint is a Hugging Face model folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a Hugging Face model") from error
    if model_type not in TYPES:
        raise InputError(f"{path}: model_type {model_type!r} is not supported: only {' and '.join(TYPES)}")
    for name in (*SIZES, "pad_token_id") if model_type == "roberta" else SIZES:
        if name not in config:
            raise InputError(f"{path}: lacks {name}")
        if not isinstance(config[name], int):
            raise InputError(f"{path}: {name} must be an integer: {config[name]!r}")
    return config


def positions(config: Mapping[str, Any]) -> int:
    """Returns the tokens of the longest input that a model with this config.json allows, special tokens included.

    RoBERTa's positions start at its padding id + 1.
    """
    unused = config["pad_token_id"] + 1 if config["model_type"] == "roberta" else 0
    return config["max_position_embeddings"] - unused
