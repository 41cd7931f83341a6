"""Selects the rows of an ablation, and replaces its negatives, sizes, seeds and reference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from flows.ablations.ablation import MOST, NONE_ALONE, Ablation, size_text, starts
from flows.recipes.yaml_layers import Layer, hint, override
from pipeline.ablation.config import UNTUNED, Negatives
from pipeline.errors import InputError

GREATEST_SEED = (1 << 63) - 2
"""Stage 2 has the next number."""


@dataclass(frozen=True)
class Choice:
    """Options of the command line. Empty: all rows, or the ablation's own values."""

    set: list[str] = field(default_factory=list)
    """Further settings of all cells, under those of sizes and rows; at least one cell has none for the same field."""
    rows: list[str] = field(default_factory=list)
    negatives: list[Negatives] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    reference: str | None = None


def apply_choice(ablation: Ablation, choice: Choice | None = None) -> tuple[Ablation, list[str]]:
    """The ablation with the chosen values instead of its own, and the selected rows in its order.

    Raises InputError for choices that are unknown, impossible or duplicated.
    """
    choice = choice or Choice()
    for name in ("rows", "negatives", "sizes", "seeds"):
        given = getattr(choice, name)
        if len({*given}) < len(given):
            raise InputError(f"--{name}: one appears twice")
    reference = ablation.reference if choice.reference is None else choice.reference
    _check_rows(ablation, [*choice.rows, reference])
    _check_negatives(choice.negatives)
    _check_numbers(choice)
    selected = [label for label in ablation.rows if label in choice.rows] if choice.rows else [*ablation.rows]
    if reference not in selected:
        raise InputError(f"the reference {reference} is not among the rows: name it too, or another by --reference")
    changes: dict[str, Any] = {
        "set": [*ablation.set, *choice.set],
        "negatives": choice.negatives or ablation.negatives,
        "sizes": choice.sizes or ablation.sizes,
        "seeds": choice.seeds or ablation.seeds,
        "reference": reference,
    }
    changed = ablation.model_copy(update=changes)
    _check_settings(changed, selected, choice.set)
    return changed, selected


def _check_rows(ablation: Ablation, labels: Sequence[str]) -> None:
    """Raises InputError for an unknown row."""
    for label in labels:
        if label not in ablation.rows:
            known = f"{hint(label, ablation.rows)}; there are {', '.join(ablation.rows)}"
            raise InputError(f"no row {label!r}{known}")


def _check_negatives(negatives: Sequence[str]) -> None:
    """Raises InputError for an unknown column, and for `none` alone."""
    kinds = get_args(Negatives)
    for kind in negatives:
        if kind not in kinds:
            raise InputError(f"--negatives {kind}: one of {', '.join(kinds)}{hint(kind, kinds)}")
    if [*negatives] == [UNTUNED]:
        raise InputError(f"--negatives: {NONE_ALONE}")


def _check_settings(ablation: Ablation, rows: Sequence[str], settings: Sequence[str]) -> None:
    """Raises InputError for a setting that every cell replaces, because it would be ignored silently."""
    own = _own_fields(ablation, rows)
    for setting in settings:
        fields = _fields([setting])
        if all(_overwritten(fields, theirs) for theirs in own.values()):
            why = f"changes nothing, as every cell has its own {', '.join(sorted(fields))}, by its row or size"
            raise InputError(f"--set {setting}: {why}")


def overwritten_settings(ablation: Ablation, rows: Sequence[str], settings: Sequence[str]) -> list[str]:
    """A line for each setting that some cells, but not all, replace by their own."""
    own = _own_fields(ablation, rows)
    lines = []
    for setting in settings:
        fields = _fields([setting])
        cells = [cell for cell, theirs in own.items() if _overwritten(fields, theirs)]
        if cells:
            sized = len(ablation.sizes) > 1
            names = [f"{row} ({size_text(size)})" if sized else row for row, size in cells]
            lines.append(f"--set {setting}: changes nothing in {', '.join(names)}, whose row or size sets it")
    return lines


def _own_fields(ablation: Ablation, rows: Sequence[str]) -> dict[tuple[str, int | None], set[str]]:
    """{(row, size): the fields that its own settings set} of these rows and of those that they start from."""
    labels = dict.fromkeys(start for label in rows for start in starts(ablation, label))
    sizes = {size: ablation.by_size.get(size, []) if size else [] for size in ablation.sizes}
    return {(row, size): _fields([*more, *ablation.rows[row].set]) for row in labels for size, more in sizes.items()}


def _overwritten(fields: set[str], own: set[str]) -> bool:
    """Whether `own` sets each field, or a section around it."""
    return all(any(f"{name}.".startswith(f"{one}.") for one in own) for name in fields)


def _fields(settings: Sequence[str]) -> set[str]:
    """The fields that the settings set; a section counts as its fields."""
    return {*_leaves(override(Layer({}), settings).data, ())}


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*keys, str(key)))
    else:
        yield ".".join(keys)


def _check_numbers(choice: Choice) -> None:
    """Raises InputError for sizes and seeds out of range."""
    for size in choice.sizes:
        if size is not None and not 1 <= size <= MOST:
            raise InputError(f"--sizes {size}: a number of training questions from 1 to {MOST:,}, or all")
    for seed in choice.seeds:
        if not 0 <= seed <= GREATEST_SEED:
            raise InputError(f"--seeds {seed}: 0 or more, and below {GREATEST_SEED + 1:,}")
