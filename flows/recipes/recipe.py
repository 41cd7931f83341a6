"""Reads and checks recipes. Errors name the file and line, or the setting."""

import inspect
import re
from collections.abc import Iterable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model, model_validator
from pydantic_core import ErrorDetails

from flows.recipes import cross_checks, yaml_layers
from flows.recipes.sections import Sections
from pipeline.errors import InputError
from pipeline.language_model.config import HIDDEN
from pipeline.paths import relative_to
from tasks.keys import with_paths, without_paths
from tasks.stages import STAGES

AnyRecipe = TypeVar("AnyRecipe", bound=BaseModel)


class Recipe(Sections):
    """A complete, checked recipe. `resolve` builds one from a file and `--set` settings."""

    @model_validator(mode="after")
    def _stages_fit_together(self) -> Self:
        cross_checks.check(self)
        return self


def _further_sections() -> dict[str, Any]:
    """{name: type} of the sections that tasks/stages.py names and `Recipe` lacks."""
    names = {stage.section: stage for stage in STAGES.values() if stage.section not in ("", *Recipe.model_fields)}
    classes = {name: inspect.signature(stage.function).parameters["config"].annotation for name, stage in names.items()}
    return {name: (section | None, ...) for name, section in classes.items()}


if _further_sections():
    Recipe = create_model("Recipe", __base__=Recipe, __module__=__name__, **_further_sections())  # type: ignore[misc]


def resolve(name: str, settings: Iterable[str] = ()) -> Recipe:
    """The complete recipe `name` (the project's, or a YAML file's path) with `stage.field=value` settings applied.

    An unknown field or a value of the wrong type is an InputError that names the file and line, or the setting.
    """
    return validate(yaml_layers.override(yaml_layers.read(name), settings), Recipe)


def with_settings(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """A complete recipe with `stage.field=value` settings applied."""
    settings = list(settings)
    if not settings:
        return recipe
    return validate(yaml_layers.override(yaml_layers.Layer(recipe.model_dump(mode="json")), settings), Recipe)


def configuration(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON values for the report, without paths and without sections that change no result."""
    left_out = {"machine", "tracking", "report", "hidden"}
    # Sections that came later: without their stage, a report stays as it was.
    unused = {"generate": not recipe.generate.is_on, "fusion_labels": recipe.fusion_labels is None}
    left_out |= {name for name, is_unused in unused.items() if is_unused}
    return {name: value for name, value in without_paths(recipe).items() if name not in left_out}


def validate(layer: yaml_layers.Layer, model: type[AnyRecipe]) -> AnyRecipe:
    """Raises InputError with the place. Relative paths in a user's file are relative to its folder."""
    try:
        recipe = model.model_validate(layer.data)
    except ValidationError as error:
        raise InputError(_one_line(error, layer, model)) from None
    return with_paths(recipe, lambda keys, path: relative_to(layer.folder(keys), path))


def _one_line(error: ValidationError, layer: yaml_layers.Layer, model: type[BaseModel]) -> str:
    problems = error.errors(include_url=False)
    # A misspelt field is both unknown and missing; "unknown" is the clearer message.
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    keys = tuple(_keys(problem["loc"], layer.data))
    missing = [".".join(_keys(p["loc"], layer.data)) for p in problems if p["type"] == "missing"]
    text = _what(problem, keys, missing, layer, model)
    where = layer.origin(keys)
    if problem["type"] == "value_error" and isinstance(problem["input"], dict):
        where = _blamed(keys, text, layer) or where
    if problem["type"] == HIDDEN and where and where.startswith("--set"):
        where = where.partition("=")[0]
    rest = len(problems) - (len(missing) if problem["type"] == "missing" else 1)
    more = f" (and {rest} more)" if rest and problem["type"] != "extra_forbidden" else ""
    return ": ".join(part for part in (where, ".".join(keys), f"{text}{more}") if part)


def _what(
    problem: ErrorDetails, keys: tuple[str, ...], missing: list[str], layer: yaml_layers.Layer, model: type[BaseModel]
) -> str:
    """The message about `keys`. `missing`: all missing fields, which share one message."""
    match problem["type"]:
        case "missing":
            return ", and so are ".join(part for part in ("missing", ", ".join(missing[1:])) if part)
        case "extra_forbidden":
            return f"unknown field{yaml_layers.hint(keys[-1], fields(keys[:-1], layer.data, model))}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"is a section; a field of it is {'.'.join(keys)}.FIELD"
    value = problem["input"]
    got = "" if isinstance(value, dict) or problem["type"] == HIDDEN else f" (got {value!r})"
    if problem["type"] in ("list_type", "tuple_type"):
        items = value if isinstance(value, str | int | float) else "A, B"
        return f"a list is expected: write [{items}]{got}"
    if problem["type"] == "path_type":
        number = isinstance(value, int | float)
        return f"a path is expected{', a number in quotes' if number else ''}{got}"
    null = ", or null" if problem["type"] == "greater_than_equal" and _accepts_null(keys, layer.data, model) else ""
    return problem["msg"].removeprefix("Value error, ") + null + got


def _accepts_null(keys: tuple[str, ...], data: Any, model: type[BaseModel]) -> bool:
    """Whether the field at `keys` may be null, which then means no limit."""
    own = [one.model_fields[keys[-1]] for one in _sections(keys[:-1], data, model) if keys[-1] in one.model_fields]
    return any(NoneType in get_args(field.annotation) for field in own)


def _blamed(keys: tuple[str, ...], text: str, layer: yaml_layers.Layer) -> str | None:
    """The place of a field that a message about `keys` names: a setting, else the user's file, else a parent."""
    named = [(*keys, *word.split(".")) for word in re.findall(r"[\w.]+", text)]
    places = [layer.origins[name] for name in named if name in layer.origins]
    return min(
        places,
        key=lambda place: (not place.startswith("--set"), not place.startswith(f"{layer.origin(())}:")),
        default=None,
    )


def _keys(loc: tuple[int | str, ...], data: Any) -> Iterator[str]:
    """A pydantic location without the union tags that pydantic puts between the fields."""
    for depth, part in enumerate(loc):
        last = depth == len(loc) - 1
        if isinstance(data, dict):
            there = part in data
        else:
            there = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if there:
            yield str(part)
            data = data[part]
        elif isinstance(data, dict) and last and part != data.get("reader"):
            yield str(part)


def fields(keys: tuple[str, ...], data: Any, model: type[BaseModel] = Recipe) -> list[str]:
    """The names of the fields of the section at `keys`. `data` says which reader a section has."""
    return list(dict.fromkeys(name for one in _sections(keys, data, model) for name in one.model_fields))


def _sections(keys: tuple[str, ...], data: Any, model: type[BaseModel]) -> list[type[BaseModel]]:
    """The classes that the section at `keys` may have. `data` says which reader it has."""
    classes: list[type[BaseModel]] = [model]
    for key in keys:
        if isinstance(data, list):
            data = data[int(key)]
        else:
            data = data.get(key) or {}
            types = [model.model_fields[key].annotation for model in classes if key in model.model_fields]
            classes = [model for annotation in types for model in _models(annotation)]
        if len(classes) > 1 and "reader" in data:
            classes = [c for c in classes if data["reader"] in get_args(c.model_fields["reader"].annotation)]
    return classes


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if get_origin(annotation) in (Annotated, list):
        yield from _models(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _models(member)
    elif isinstance(annotation, type) and annotation is not NoneType and issubclass(annotation, BaseModel):
        yield annotation
