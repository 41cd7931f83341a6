"""Explains why a stage would run."""

import json
from collections.abc import Mapping
from typing import Any

from artifacts.keys import Key
from artifacts.names import one_line
from artifacts.records import Record
from artifacts.store import Store

WIDTH = 60
"""Largest number of characters of a value in a line."""
FEW = 3
"""An artifact of another recipe explains something if it has at most so many differences."""


def explain(store: Store, key: Key, node: str, recipe: str | None = None) -> list[str]:
    """Returns a line for each reason to build `key`; empty if it is in the store. Changes nothing on disk.

    `recipe`: the one that would build it.
    """
    record = store.record(key.hex)
    if record is not None:
        problem = store.problem(record)
        return [] if problem is None else [f"artifact missing or broken: {problem}"]
    if any(store.broken.glob(f"{key.hex}.json-*")):
        return ["was set aside: damaged, lost, or built from damaged bytes"]
    earlier = nearest_record(store, key, node, recipe)
    if earlier is None:
        return ["nothing built yet"]
    lines = differences(earlier, key)
    if recipe not in (None, earlier.recipe) and len(lines) > FEW:
        return [f"nothing built yet by the recipe {recipe}"]
    return lines


def nearest_record(store: Store, key: Key, node: str, recipe: str | None = None) -> Record | None:
    """Returns the record of the same stage (then of the same node and recipe, if any) that differs least from `key`;
    the newest of equals.
    """
    records = store.records_of(key)
    records = [record for record in records if record.node == node] or records
    records = [record for record in records if recipe in (None, record.recipe)] or records
    return min(records, key=lambda record: len(differences(record, key)), default=None)


def differences(earlier: Record, key: Key) -> list[str]:
    """Returns a line for each configuration field, code file, input, source and library that differs."""
    todays = key.equivalent
    config = todays.config(earlier.config) or earlier.config
    lines = [
        f"config {name}: {_short(old)} -> {_short(new)}"
        for name, old, new in _changes(_flat(config), _flat(key.config))
    ]
    lines += [f"code of {name} {_how(old, new)}" for name, old, new in _changes(earlier.code, key.code)]
    lines += [
        f"input {name} {_how(old, new)}" for name, old, new in _changes(todays.inputs(earlier.inputs), key.inputs)
    ]
    lines += [f"source {name} {_how(old, new)}" for name, old, new in _changes(earlier.sources, key.sources)]
    lines += [
        f"library {name}: {_short(old)} -> {_short(new)}"
        for name, old, new in _changes(earlier.libraries, key.libraries)
    ]
    return lines


class _Absent:
    """Marks a missing field, because None is a valid value."""


ABSENT = _Absent()


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    both = [(name, old.get(name, ABSENT), new.get(name, ABSENT)) for name in sorted({*old, *new})]
    return [(name, a, b) for name, a, b in both if a is ABSENT or b is ABSENT or a != b]


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {prefix + name: value}
    return flat


def _short(value: Any) -> str:
    text = "(none)" if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return one_line(text, WIDTH)


def _how(old: Any, new: Any) -> str:
    return "is new" if old is ABSENT else "is no longer used" if new is ABSENT else "changed"
