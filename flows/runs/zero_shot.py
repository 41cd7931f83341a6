"""The recipe that measures a ready model on a collection, without training: zero-shot."""

import re
from collections.abc import Iterable
from typing import Any

from artifacts.store import Store
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, validate
from flows.runs import given_collection, given_model
from flows.runs.given_model import Model
from pipeline.errors import InputError

UNSAFE = re.compile(r"[^\w. ()+-]+")
"""In names of files."""
CPU_BUDGET = 2000
"""Tokens of a forward call; more leave a CPU's cache."""


def zeroshot(
    store: Store,
    model: str,
    collection: str,
    settings: Iterable[str] = (),
    *,
    name: str | None = None,
    cpu: bool = True,
) -> tuple[Recipe, dict[str, Any]]:
    """The complete recipe, and what in it differs from the base recipe, as a file of it would say.

    `model` and `collection` as given_model.py and given_collection.py take them. Raises InputError for
    either, and for settings against what the model's folder says of its vectors.
    """
    settings = list(settings)
    ready, searched = given_model.find(store, model), given_collection.find(collection)
    called = _cleaned(f"{ready.name} on {searched.name}") if name is None else _given(name)
    own: dict[str, Any] = {
        "name": called,
        "title": called,
        "description": f"{ready.name} as it is, without training, on {searched.name}.",
        "example_question": None,
        "hidden": False,
        "model": str(ready.folder),
        "ingest": searched.ingest,
        "tokenizer": {"pretrained": None, "path": str(ready.question.folder)},
        "encoder": ready.encoder,
        "bm25": {"k1": 0.9, "b": 0.4},  # Anserini's defaults, as in BEIR's tables
        "encode": {"passage_tokens": ready.passage_tokens, "shard_passages": 2000},
        "attention": {"sections": 0},
        "report": {"title": called},
        **({"machine": {"token_budget": CPU_BUDGET}} if cpu else {}),
        **searched.more,
    }
    layer = yaml_layers.merge(yaml_layers.read("base"), yaml_layers.Layer(own))
    recipe = validate(yaml_layers.override(layer, settings), Recipe)
    _check(recipe, ready)
    return recipe, {"extends": "base", **yaml_layers.override(yaml_layers.Layer(own), settings).data}


def _cleaned(name: str) -> str:
    return UNSAFE.sub("-", name).strip(" -.")


def _given(name: str) -> str:
    """A run goes by its recipe's name, and is the newest of that name."""
    if not name.strip() or name != _cleaned(name):
        raise InputError(f"--name {name!r}: letters, digits and ' ._()+-' make a name, with none of ' .-' at its ends")
    if name in yaml_layers.named():
        raise InputError(f"--name {name}: is a recipe's, whose newest run this would be")
    return name


def _check(recipe: Recipe, model: Model) -> None:
    """What the model's folder says of its vectors holds, whatever the recipe says; lengths must have room."""
    one = model.question
    vector = {"pooling": one.pooling, "normalise": one.normalise}  # None: the folder does not say it
    said: dict[str, object] = {field: own for field, own in vector.items() if own is not None}
    said |= {"projection": one.projection, "tied": model.encoder["tied"]}
    for field, own in said.items():
        given = getattr(recipe.encoder, field)
        if given != own:
            raise InputError(f"encoder.{field}: {_shown(given)}, but the model in {model.folder} has {_shown(own)}")
    lengths = {
        "encoder.question_tokens": (recipe.encoder.question_tokens, model.question),
        "encode.passage_tokens": (recipe.encode.passage_tokens, model.passage),
    }
    for field, (tokens, side) in lengths.items():
        if tokens > side.positions:
            raise InputError(f"{field}: {tokens}, but the model in {side.folder} has {side.positions} positions")


def _shown(value: object) -> str:
    """As in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)
