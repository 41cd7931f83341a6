"""The base of every stage's configuration."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _no_truth(given: Any) -> Any:
    if isinstance(given, bool):
        raise ValueError("a number is expected")
    return given


Whole = Annotated[int, BeforeValidator(_no_truth)]
"""A number that `true` is not."""
Seed = Annotated[Whole, Field(ge=0, lt=1 << 63)]
"""What numpy and torch both take."""


class Config(BaseModel):
    """Frozen, complete and strict.

    No field of a recipe has a default here: the base recipe (flows/recipes/base.yaml) gives every one, so that a
    configuration given in part is refused instead of silently becoming another experiment. The docstring under a
    field gives its unit and its source.

    A field of type `Path` never enters an artifact's key; the content of the file or folder that it names does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
