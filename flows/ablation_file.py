"""Ablations as files: YAML over what it extends, every error with its file and line."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows import layers
from flows.ablation import Ablation, Row, cells
from flows.recipe import resolve
from pipeline.errors import InputError

ABLATIONS = Path(__file__).parent / "ablations"


def named() -> list[str]:
    """The ablations that come with the project and are not hidden."""
    return sorted(path.stem for path in ABLATIONS.glob("*.yaml") if not layers.parse(path).data.get("hidden", False))


def load(name: str) -> Ablation:
    """The complete ablation `name` (the project's, or a YAML file's path).

    Raises InputError, naming file and line, for unknown fields, wrong values and rows whose settings do not fit.
    """
    layer = _read(_find(name, Path()), ())
    data = layer.data
    rows = data.get("rows")
    if isinstance(rows, dict):
        data["rows"] = {label: row for label, row in rows.items() if row is not None}  # null takes a row back
    if not isinstance(data.get("recipe"), str):
        raise InputError(f"{layer.origin(('recipe',))}: recipe: a recipe's name or the path of its file is missing")
    try:
        data["recipe"] = resolve(data["recipe"]).model_dump(mode="json")
    except InputError as error:
        raise InputError(f"{layer.origin(('recipe',))}: recipe: {error}") from None
    try:
        ablation = Ablation.model_validate(data)
    except ValidationError as error:
        raise InputError(_one_line(error, layer)) from None
    for label in ablation.rows:
        try:
            cells(ablation, [label])
        except InputError as error:
            raise InputError(f"{layer.origin(('rows', label))}: {error}") from None
    return ablation


def _find(name: str, folder: Path) -> Path:
    if name.endswith((".yaml", ".yml")):
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path}: no such file of an ablation")
        return path
    path = ABLATIONS / f"{name}.yaml"
    if not path.is_file():
        raise InputError(f"no ablation {name!r}{layers.hint(name, named())}; `cocondenser ablation list` lists them")
    return path


def _read(path: Path, seen: tuple[Path, ...]) -> layers.Layer:
    if path.resolve() in seen:
        raise InputError(f"{path}: extends itself")
    layer = layers.parse(path)
    layer.data.setdefault("name", path.stem)
    recipe = layer.data.get("recipe")
    if isinstance(recipe, str) and recipe.endswith((".yaml", ".yml")):
        layer.data["recipe"] = str(path.parent / recipe)
    parent = layer.data.pop("extends", None)
    if parent is None:
        return layer
    own: dict[str, Any] = {"title": path.stem, "description": "", "hidden": False}  # not inherited
    layer.data.update({field: layer.data.get(field, value) for field, value in own.items()})
    if not isinstance(parent, str):
        raise InputError(f"{layer.origin(('extends',))}: extends: takes one ablation's name or path")
    try:
        below = _find(parent, path.parent)
    except InputError as error:
        raise InputError(f"{layer.origin(('extends',))}: {error}") from None
    return layers.merge(_read(below, (*seen, path.resolve())), layer)


def _one_line(error: ValidationError, layer: layers.Layer) -> str:
    """The first problem, with its place; a field spelt wrongly before those that are missing for it."""
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    keys = tuple(str(part) for part in problem["loc"])
    field = ".".join(keys)
    if problem["type"] == "extra_forbidden":
        known = Row.model_fields if keys[0] == "rows" else Ablation.model_fields
        text = f"unknown field{layers.hint(keys[-1], known)}"
    elif problem["type"] == "missing":
        text = "missing"
    else:
        given = problem["input"]
        text = problem["msg"].removeprefix("Value error, ") + ("" if isinstance(given, dict) else f" (got {given!r})")
    blamed = keys or tuple(text.partition(": ")[0].split("."))  # a validator of the whole names its field
    return ": ".join(part for part in (layer.origin(blamed), field, text) if part)
