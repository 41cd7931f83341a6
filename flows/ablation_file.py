"""Ablations as files: YAML over what it extends, every error with its file and line."""

from pathlib import Path

from pydantic import ValidationError

from flows import layers
from flows.ablation import Ablation, Row, cells
from flows.layers import Family, Layer, own_texts
from flows.recipe import resolve
from pipeline.errors import InputError

ABLATIONS = Family(Path(__file__).parent / "ablations", "ablation", "cocondenser ablation list", own_texts)


def named() -> list[str]:
    """The ablations that come with the project and are not hidden."""
    found = layers.named(ABLATIONS)
    return [name for name in found if not layers.parse(ABLATIONS.folder / f"{name}.yaml").data.get("hidden", False)]


def load(name: str) -> Ablation:
    """The complete ablation `name` (the project's, or a YAML file's path).

    Raises InputError, naming file and line, for unknown fields, wrong values and rows whose settings do not fit.
    """
    layer = layers.read(name, ABLATIONS)
    data = layer.data
    rows = data.get("rows")
    if isinstance(rows, dict):
        data["rows"] = {label: row for label, row in rows.items() if row is not None}  # null takes a row back
    if not isinstance(data.get("recipe"), str):
        raise InputError(f"{layer.origin(('recipe',))}: recipe: a recipe's name or the path of its file is missing")
    try:
        data["recipe"] = resolve(_beside(data["recipe"], layer)).model_dump(mode="json")
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


def _beside(recipe: str, layer: Layer) -> str:
    """A recipe's path is from the file that names it."""
    if not recipe.endswith((".yaml", ".yml")):
        return recipe
    named_in = str(layer.origin(("recipe",))).rpartition(":")[0]
    return str(Path(named_in).parent / recipe)


def _one_line(error: ValidationError, layer: Layer) -> str:
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
