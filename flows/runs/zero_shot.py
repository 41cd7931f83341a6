"""The recipe of `evaluate-model`: it measures an existing model on a collection without training (zero-shot)."""

import re
from collections.abc import Iterable
from typing import Any

from artifacts.store import Store
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, validate
from flows.runs.adaptation import adaptation, check_adapts
from flows.runs.find_collection import find_collection
from flows.runs.find_model import check_agreement, find_model
from pipeline.errors import InputError
from pipeline.runtime.work import DeviceName

UNSAFE = re.compile(r"[^\w. ()+-]+")
"""Characters that a run's name must not have."""


def zero_shot_recipe(
    store: Store,
    model: str,
    collection: str,
    settings: Iterable[str] = (),
    *,
    name: str | None = None,
    adapt: bool = False,
    device: DeviceName | None = None,
) -> tuple[Recipe, dict[str, Any]]:
    """(the complete recipe, its differences from the base recipe, as the content of a file).

    `model` and `collection`: see find_model.py and find_collection.py. `adapt`: also the model adapted without
    questions, as suits `device` (None: the recipe's). Raises InputError for these, and for settings that contradict the
    model's folder.
    """
    settings = list(settings)
    bi_encoder, target = find_model(store, model), find_collection(collection)
    default_name = _safe_name(f"{bi_encoder.name} on {target.name}")
    run_name = default_name if name is None else _checked_name(name)
    changes: dict[str, Any] = {
        "name": run_name,
        "title": run_name,
        "description": f"{bi_encoder.name} as it is, {_adaptation_text(adapt)}, on {target.name}.",
        "example_question": None,
        "hidden": False,
        "model": str(bi_encoder.folder),
        "ingest": target.ingest,
        "tokenizer": {"pretrained": None, "path": str(bi_encoder.question.folder)},
        "encoder": bi_encoder.encoder,
        "bm25": {"k1": 0.9, "b": 0.4, "language": "auto"},  # Anserini's defaults, as in BEIR's tables
        "encode": {"passage_tokens": bi_encoder.passage_tokens, "shard_passages": 2000},
        "attention": {"sections": 0},
        "report": {"title": run_name},
        **target.more,
    }
    base = yaml_layers.read("base")
    if adapt:
        changes["adapt"] = adaptation(yaml_layers.override(base, settings), device)
        changes["evaluate"] = {**target.more.get("evaluate", {}), "fusions": [["bm25", "model"]]}
    layer = yaml_layers.merge(base, yaml_layers.Layer(changes))
    recipe = validate(yaml_layers.override(layer, settings), Recipe)
    if adapt:
        check_adapts(recipe)
    check_agreement(recipe, bi_encoder)
    return recipe, {"extends": "base", **yaml_layers.override(yaml_layers.Layer(changes), settings).data}


def _adaptation_text(adapt: bool) -> str:
    return "and adapted without questions" if adapt else "without training"


def _safe_name(name: str) -> str:
    return UNSAFE.sub("-", name).strip(" -.")


def _checked_name(name: str) -> str:
    """Raises InputError for a name with other characters, or of a recipe: the run would be the newest run of it."""
    if not name.strip() or name != _safe_name(name):
        raise InputError(f"--name {name!r}: only letters, digits and ' ._()+-' are allowed, and no ' .-' at either end")
    if name in yaml_layers.named():
        raise InputError(f"--name {name}: is the name of a recipe; choose another one")
    return name
