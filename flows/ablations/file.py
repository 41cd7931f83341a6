"""Reads ablations from YAML files. Every error names the file and line."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.ablations.ablation import Ablation, Cell, Row, SettingError, cells
from flows.recipes import yaml_layers
from flows.recipes.recipe import resolve
from flows.recipes.yaml_layers import Family, Keys, Layer, own_texts
from pipeline.errors import InputError
from pipeline.paths import expand_home, relative_to
from tasks.keys import paths

ABLATIONS = Family(Path(__file__).parent, "ablation", "cocondenser ablation list", own_texts)
Known = Mapping[str, Collection[Path]]
"""Field -> the paths that it has in the cells' recipes."""


def listed() -> list[str]:
    """The ablations that come with the project and are not hidden."""
    return yaml_layers.listed(ABLATIONS)


def load(name: str) -> Ablation:
    """The complete ablation `name` (the project's, or a YAML file's path).

    Relative paths in its settings are relative to the file. Raises InputError with file and line for
    unknown fields, wrong values and rows whose settings do not fit.
    """
    layer = yaml_layers.read(name, ABLATIONS)
    data = layer.data
    rows = data.get("rows")
    if isinstance(rows, dict):
        data["rows"] = {label: row for label, row in rows.items() if row is not None}  # null removes a row
    if not isinstance(data.get("recipe"), str):
        raise InputError(f"{layer.origin(('recipe',))}: recipe: a recipe's name or the path of its file is missing")
    try:
        data["recipe"] = resolve(_recipe_path(data["recipe"], layer)).model_dump(mode="json")
    except InputError as error:
        raise InputError(f"{layer.origin(('recipe',))}: recipe: {error}") from None
    try:
        ablation = Ablation.model_validate(data)
    except ValidationError as error:
        raise InputError(_one_line(error, layer)) from None
    _check_null_rows(yaml_layers.chain(name, ABLATIONS))
    _check_sizes(ablation, layer)
    every_cell: list[Cell] = []
    for label in ablation.rows:
        try:
            every_cell += cells(ablation, [label])
        except SettingError as error:
            row = "" if error.keys == ("rows", label) else f" (row {label})"
            raise InputError(f"{_place(error.keys, layer)}: {error.why.removeprefix('--set ')}{row}") from None
    known: defaultdict[str, set[Path]] = defaultdict(set)
    for cell in every_cell:
        for field, path in paths(cell.recipe):
            known[field].add(path)
    return _located(ablation, layer, known)


def _located(ablation: Ablation, layer: Layer, known: Known) -> Ablation:
    """The ablation, with the relative paths of its settings joined to the folder of their file."""

    def located(settings: list[str], *keys: str) -> list[str]:
        folder = layer.folder(keys)
        return settings if folder is None else [_from(folder, setting, known) for setting in settings]

    rows = {
        label: row.model_copy(update={"set": located(row.set, "rows", label, "set")})
        for label, row in ablation.rows.items()
    }
    by_size = {size: located(settings, "by_size", str(size)) for size, settings in ablation.by_size.items()}
    return ablation.model_copy(update={"set": located(ablation.set, "set"), "rows": rows, "by_size": by_size})


def _from(folder: Path, setting: str, known: Known) -> str:
    keys, value = yaml_layers.parsed(setting)
    there = _paths_in(folder, ".".join(keys), value, known)
    return setting if there == value else f"{'.'.join(keys)}={json.dumps(there, ensure_ascii=False)}"


def _paths_in(folder: Path, name: str, value: Any, known: Known) -> Any:
    """The value of the field `name`, with its relative paths joined to `folder`."""
    if isinstance(value, dict):
        return {key: _paths_in(folder, f"{name}.{key}", member, known) for key, member in value.items()}
    if isinstance(value, list):
        return [_paths_in(folder, f"{name}.{n}", member, known) for n, member in enumerate(value)]
    is_path = isinstance(value, str) and name in known and expand_home(value) in known[name]
    return str(relative_to(folder, value)) if is_path else value


def _check_null_rows(found: Sequence[Layer]) -> None:
    """Raises InputError if the first file removes a row that none of the others has."""
    rows, *others = [layer.data.get("rows") for layer in found]
    there = [label for below in others if isinstance(below, dict) for label in below]
    for label in [label for label, row in rows.items() if row is None] if isinstance(rows, dict) else []:
        if label not in there:
            place = _place(("rows", str(label)), found[0])
            raise InputError(f"{place}: no such row to remove{yaml_layers.hint(str(label), there)}")


def _check_sizes(ablation: Ablation, layer: Layer) -> None:
    """Raises InputError for settings of a size that no cell has, except those of an extended file."""
    known = ", ".join("null" if size is None else f"{size:,}" for size in ablation.sizes)
    for size in ablation.by_size:
        keys = ("by_size", str(size))
        if size not in ablation.sizes and str(layer.origin(keys)).startswith(f"{layer.origin(())}:"):
            raise InputError(f"{_place(keys, layer)}: sizes has no {size:,}, only {known}")


def _place(keys: Keys, layer: Layer) -> str:
    """`own.yaml:3: rows.BERT`; for a field of an extended file `own.yaml: rows.BERT, from standard.yaml:19`."""
    where, own, field = str(layer.origin(keys)), str(layer.origin(())), ".".join(keys)
    return f"{where}: {field}" if where.startswith(f"{own}:") else f"{own}: {field}, from {where}"


def _recipe_path(recipe: str, layer: Layer) -> str:
    """A recipe's path is relative to the file that names it."""
    if not recipe.endswith((".yaml", ".yml")):
        return recipe
    named_in = str(layer.origin(("recipe",))).rpartition(":")[0]
    return str(relative_to(Path(named_in).parent, recipe))


def _one_line(error: ValidationError, layer: Layer) -> str:
    """The first problem, with its place; a misspelt field comes before missing ones."""
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    keys = tuple(str(part) for part in problem["loc"] if part != "[key]")  # pydantic's mark of a name
    field = ".".join(keys)
    if problem["type"] == "extra_forbidden":
        known = Row.model_fields if keys[0] == "rows" else Ablation.model_fields
        text = f"unknown field{yaml_layers.hint(keys[-1], known)}"
    elif problem["type"] == "missing":
        text = "missing"
    else:
        value = problem["input"]
        text = problem["msg"].removeprefix("Value error, ") + ("" if isinstance(value, dict) else f" (got {value!r})")
    blamed = keys or tuple(text.partition(": ")[0].split("."))  # a validator of the whole names its field
    return ": ".join(part for part in (layer.origin(blamed), field, text) if part)
