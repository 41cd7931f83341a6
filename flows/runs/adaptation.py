"""How `--adapt` adapts an existing model without questions, in `run`, `plan` and `evaluate-model`."""

from typing import Any

from pydantic import BaseModel

from flows.recipes.recipe import Recipe, validate
from flows.recipes.yaml_layers import Layer
from pipeline.errors import InputError
from pipeline.runtime.launch import device_of
from pipeline.runtime.work import DeviceName, Machine

ADAPT_QUERIES = 1000
"""Generated queries to adapt a model with (docs/finetuning.md)."""


class MachineOfRecipe(BaseModel):
    """The part of a recipe that says how to run, read before the rest is complete."""

    machine: Machine


def adaptation(layer: Layer, device: DeviceName | None) -> dict[str, Any]:
    """Returns the fields of the section `adapt` for a recipe's device. `device`: instead of the recipe's.

    A linear map takes a minute on a CPU. On a GPU all weights are trained, which costs over 30 times as much.
    Raises InputError for a section `machine` that is not valid.
    """
    machine = validate(layer, MachineOfRecipe).machine
    used = device_of(machine.model_copy(update={"device": device or machine.device}))
    return {"queries": ADAPT_QUERIES, "trains": "both_encoders" if used == "cuda" else "map"}


def check_adapts(recipe: Recipe) -> None:
    """Raises InputError for a recipe of `--adapt` that adapts nothing."""
    if recipe.adapt.queries is None:
        raise InputError("--adapt: contradicts --set adapt.queries=null, which adapts nothing")
