"""An ablation: one recipe in several rows, sizes of training data and seeds; each cell has its own recipe."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from artifacts.schema import Name
from flows.recipes.recipe import Recipe, with_settings
from flows.recipes.yaml_layers import Keys, Layer, hint, override
from pipeline.ablation.config import SEEDED, UNTUNED, Negatives
from pipeline.config import Config, Seed, Whole
from pipeline.errors import InputError
from pipeline.evaluate.config import Measure
from pipeline.evaluate.significance.paired import Test
from tasks.page import key

MOST = 1_000_000_000
"""Training questions: more than any collection has."""
Size = Annotated[Whole, Field(ge=1, le=MOST)] | None
"""Training questions; None: all."""
FIXED: dict[str, list[Keys]] = {
    "seeds": [tuple(field.split(".")) for field in SEEDED],
    "sizes": [("train_subset", "queries")],
}
"""Fields of the recipe that these fields of the ablation set."""
FIXED_REASONS = {field: f"{name} give {'.'.join(field)}" for name, fields in FIXED.items() for field in fields} | {
    ("attention", "corpus"): "all rows have attention.corpus=collection"
}
"""Fields that no setting can change, and why."""
ROUNDS = {("rounds", "number"): "negatives give rounds.number"}
"""The same, if the settings give another number of rounds than the negatives need."""
NONE_ALONE = "none trains nothing: add bm25, mined or fusion"
"""Why negatives cannot be [none]."""
SHARED = [("ingest",), ("evaluate", "relevance")]
"""Fields that decide which questions are measured."""


def plain(label: str) -> str:
    """Checks a row's name. Raises ValueError if names of tasks and tables cannot contain it."""
    if not re.fullmatch(r"\w[\w.+-]*( [\w.+-]+)*", label):
        raise ValueError(
            "a row's name has letters, digits, . _ + - and single spaces between them, a letter, digit or _ first"
        )
    return label


Label = Annotated[str, AfterValidator(plain)]


class Row(Config):
    """A model that is compared."""

    set: list[str]
    """`stage.field=value` settings of the ablation's recipe. A row that is a list has these alone."""
    start: str | None
    """The row from whose pre-trained model, with its head, this row starts instead of the initial model. null: none.
    With `start`, `set` may be missing."""

    @model_validator(mode="before")
    @classmethod
    def _settings_alone(cls, row: Any) -> Any:
        if isinstance(row, list):
            return {"set": row, "start": None}
        return {"set": [], **row} if isinstance(row, dict) and "start" in row else row


class Ablation(Config):
    """Complete: no field has a default. flows/ablations/file.py reads one from its file."""

    name: Name
    """The file without `.yaml`."""
    title: str = Field(min_length=1)
    """One line for the listing and the page."""
    description: str
    """What the ablation needs and builds, and how long it takes, in a few lines."""
    hidden: bool
    """Whether listings leave the ablation out: it is for tests, or others extend it."""
    recipe: Recipe
    """The recipe of all cells; the file has its name."""
    set: list[str]
    """Settings of all cells; those of sizes and rows replace them."""
    rows: dict[Label, Row] = Field(min_length=1)
    """The models by their names in the tables, in this order."""
    negatives: list[Negatives] = Field(min_length=1)
    """The tables' columns. `none`: the model before fine-tuning, once for all sizes and seeds; it cannot be alone.
    `bm25`: the model of stage 1. `mined`: the model of the last stage 2; only this column needs mining and stage 2.
    `fusion`: BM25 fused with the last dense run."""
    sizes: list[Size] = Field(min_length=1)
    """Numbers of training questions, from the start of one shuffle: larger sets contain smaller ones. null: all."""
    by_size: dict[int, list[str]]
    """Settings of the cells of a size, such as more epochs for fewer questions."""
    seeds: list[Seed] = Field(min_length=1)
    """Seeds of fine-tuning alone; each row is pre-trained once. Stage 1 has the seed and stage 2 the next number, as in
    the recipes."""
    reference: str
    """The row that the others are tested against."""
    measures: list[Measure] = Field(min_length=1)
    """The measures in the table, such as RR@10; table.json has all."""
    test: Test
    """The significance test of differences from the reference, paired by question."""
    samples: Whole = Field(ge=100, le=1_000_000)
    """Resamples of the questions, for intervals and the randomisation test."""
    test_seed: Seed
    """Seed of the resamples."""

    @model_validator(mode="after")
    def _names_are_known_and_different(self) -> Self:
        for field in ("negatives", "sizes", "seeds", "measures"):
            values = getattr(self, field)
            if len({*values}) < len(values):
                raise ValueError(f"{field}: one appears twice")
        if self.negatives == [UNTUNED]:
            raise ValueError(f"negatives: {NONE_ALONE}")
        if self.reference not in self.rows:
            raise ValueError(f"reference: {self.reference!r} is not among the rows{hint(self.reference, self.rows)}")
        by_key: dict[str, str] = {}
        for label in self.rows:
            if label.lower() == "bm25":
                raise ValueError(f"rows.{label}: is the name of the tables' first row")
            other = by_key.setdefault(key("row", label), label)
            if other != label:
                alike = "capitals and signs do not count"
                raise ValueError(f"rows.{label}: Prefect's page cannot distinguish it from {other}: {alike}")
            starts(self, label)
        return self


@dataclass(frozen=True)
class Cell:
    """A model that is trained and measured."""

    row: str
    size: int | None
    seed: int
    recipe: Recipe


def starts(ablation: Ablation, label: str) -> list[str]:
    """The row, the row that it starts from, and so on. Raises ValueError for an unknown row and for a circle."""
    found = [label]
    while (start := ablation.rows[found[-1]].start) is not None:
        if start not in ablation.rows:
            raise ValueError(f"rows.{found[-1]}.start: no row {start!r}{hint(start, ablation.rows)}")
        if start in found:
            raise ValueError(f"rows.{label}.start: {', '.join(found)}: a circle")
        found.append(start)
    return found


def cells(ablation: Ablation, rows: Iterable[str] | None = None) -> list[Cell]:
    """The cells (of these rows), row by row, then by size and seed.

    Raises InputError with the row's name if its settings do not fit the recipe.
    """
    return [
        _cell(ablation, label, size, seed)
        for label in (ablation.rows if rows is None else rows)
        for size in ablation.sizes
        for seed in ablation.seeds
    ]


class SettingError(InputError):
    """A row's settings do not fit the recipe."""

    def __init__(self, row: str, keys: Keys, why: str) -> None:
        super().__init__(f"row {row}: {why}")
        self.keys = keys
        """The field of the ablation that is wrong."""
        self.why = why


def _cell(ablation: Ablation, label: str, size: int | None, seed: int) -> Cell:
    row = ("rows", label)
    given: dict[Keys, list[str]] = {
        ("set",): ablation.set,
        ("by_size", str(size)): ablation.by_size.get(size, []) if size else [],
        row: ablation.rows[label].set,
    }
    mined = "mined" in ablation.negatives
    # Without stage 2 its fields are not checked.
    stages: dict[Keys, list[str]] = {} if mined else {("negatives",): ["rounds.number=0"]}
    own = _changed(ablation.recipe, stages | given, label)
    rounds = max(own.rounds.number, 1) if mined else 0
    for keys, settings in given.items():
        _check_settings(settings, keys, label, FIXED_REASONS if rounds == own.rounds.number else FIXED_REASONS | ROUNDS)
    fixed: dict[Keys, list[str]] = {
        ("sizes",): [f"{'.'.join(field)}={size or 'null'}" for field in FIXED["sizes"]],
        ("negatives",): [f"rounds.number={rounds}"],
        ("seeds",): [f"{'.'.join(field)}={seed + (field[0] == 'stage2')}" for field in FIXED["seeds"]],
        # The attention of all rows is measured on the same sections, whether or not they read general text.
        row: ["attention.corpus=collection"],
    }
    return Cell(label, size, seed, _changed(own, fixed, label))


def _changed(recipe: Recipe, given: dict[Keys, list[str]], label: str) -> Recipe:
    """The recipe with settings. `given`: field of the ablation -> its settings."""
    try:
        return with_settings(recipe, [setting for settings in given.values() for setting in settings])
    except InputError as error:
        why = str(error)
        blamed = (keys for keys, own in reversed(given.items()) if any(why.startswith(f"--set {one}: ") for one in own))
        raise SettingError(label, next(blamed, ("rows", label)), why) from None


def _check_settings(settings: Sequence[str], keys: Keys, label: str, fixed: Mapping[Keys, str]) -> None:
    """Raises SettingError for settings that would be replaced silently, and for questions that differ by cell."""
    layer = override(Layer({}), settings)
    wrong = {field: f"in an ablation {why}" for field, why in fixed.items()}
    if keys != ("set",):
        same = "all cells are measured on the same questions"
        wrong |= {field: f"{same}: {'.'.join(field)} is only allowed in `set`" for field in SHARED}
    for field, why in wrong.items():
        if _value(layer.data, field) is not None:
            raise SettingError(label, keys, f"{layer.origin(field)}: {why}")


def _value(data: Any, keys: Keys) -> Any:
    for name in keys:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def size_text(size: int | None) -> str:
    """`1,000`; `all`."""
    return "all" if size is None else f"{size:,}"
