"""The base of every stage's configuration."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from pipeline import paths


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is expected")
    return value


Whole = Annotated[int, BeforeValidator(_no_boolean)]
"""An integer; `true` and `false` are rejected."""
Seed = Annotated[Whole, Field(ge=0, lt=1 << 63)]
"""The range that both numpy and torch accept."""


def _count_or_auto(value: Any) -> Any:
    if value != "auto" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError("a whole number from 1, or auto")
    return value


CountOrAuto = Annotated[int | Literal["auto"], BeforeValidator(_count_or_auto)]
"""`auto`: the program chooses the number."""


def _dropout(value: Any) -> Any:
    if value != "checkpoint" and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1):
        raise ValueError("a number from 0 to below 1, or checkpoint")
    return value


DropoutShare = Annotated[float | Literal["checkpoint"], BeforeValidator(_dropout)]
"""Probability of dropout; `checkpoint`: as in the configuration of the checkpoint that the training starts from."""


def number_or(choice: CountOrAuto, automatic: int) -> int:
    """Returns the number that a field sets, or `automatic`."""
    return automatic if choice == "auto" else choice


class Config(BaseModel):
    """Frozen, complete and strict.

    No field of a recipe has a default here: the base recipe (flows/recipes/base.yaml) sets every field. A partial
    configuration is an error; otherwise it would silently become another experiment. The exception are fields that came
    after others had built artifacts and recipes without them: their default computes what was computed before, and a
    field at its default enters no artifact's key (tasks/keys.py). The docstring under a field states its unit and its
    source. `null` has one meaning: without it (no such value, step or limit). What the program
    or a model decides is a word: `auto`, `checkpoint`.

    A field of type `Path` never enters an artifact's key; the content of the file or folder does. `~` is the user's
    home folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*")
    @classmethod
    def _homes_are_expanded(cls, value: Any) -> Any:
        if isinstance(value, Path):
            return paths.expand_home(value)
        if isinstance(value, dict):
            return {name: cls._homes_are_expanded(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(cls._homes_are_expanded(item) for item in value)
        return value


def each_once(splits: list[str]) -> list[str]:
    """Rejects duplicate splits, whose rows the run would contain twice."""
    if len({*splits}) < len(splits):
        raise ValueError("names a split twice")
    return splits
