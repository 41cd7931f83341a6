"""Writes the command that computes a recipe again."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import yaml

from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from tasks.keys import paths
from tasks.printable import json_text

IGNORED = ("name", "title", "description", "example_question", "hidden", "machine", "tracking", "report")
"""Sections and fields that change no result."""
PLACE = "PATH"
"""Replaces the folder of a file, which changes no result either."""


def command(recipe: Recipe) -> list[str]:
    """Returns the command's words: the name of a project's recipe, and a `--set` for each field that differs.

    For a user's recipe this is the project's recipe with the fewest differences, so a reader does not need the file.
    """
    known = yaml_layers.named()
    places = {name: f"{PLACE}/{path.name}" for name, path in paths(recipe)}
    fields = {name: value for name, value in recipe.model_dump(mode="json").items() if name not in IGNORED}
    names = [recipe.name] if recipe.name in known else known
    brief = recipe.model_dump(mode="json", exclude_defaults=True)
    settings = {name: list(_settings(_fields(name), fields, brief, (), places)) for name in names}
    nearest = min(names, key=lambda name: len(settings[name]))
    return ["cocondenser", "run", nearest, *(word for setting in settings[nearest] for word in ("--set", setting))]


@cache
def _fields(name: str) -> dict[str, Any]:
    return resolve(name).model_dump(mode="json")


def _settings(
    was: dict[str, Any], now: dict[str, Any], brief: dict[str, Any], keys: tuple[str, ...], places: dict[str, str]
) -> Iterator[str]:
    """`brief`: `now` without fields at their defaults, for sections that are written as a whole."""
    for key, value in now.items():
        here = (*keys, key)
        old = was.get(key)
        if value == old:
            continue
        if isinstance(value, dict) and isinstance(old, dict) and value.get("reader") == old.get("reader"):
            yield from _settings(old, value, brief.get(key, {}), here, places)
        else:  # another reader has other fields, which replace the section
            yield f"{'.'.join(here)}={_text(_placed(brief.get(key, value), here, places))}"


def _placed(value: Any, keys: tuple[str, ...], places: dict[str, str]) -> Any:
    """The value with a stand-in for each path."""
    if isinstance(value, dict):
        return {key: _placed(item, (*keys, key), places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_placed(item, (*keys, str(n)), places) for n, item in enumerate(value)]
    return places.get(".".join(keys), value)


def _text(value: Any) -> str:
    """The value as `--set` reads it; text without quotes where possible."""
    with suppress(ValueError, yaml.YAMLError):  # no YAML, or a character that it refuses
        if isinstance(value, str) and value and yaml.load(value, yaml_layers.Loader) == value:
            return value
    return json_text(value)
