"""An ablation: one recipe in several rows, sizes of training data and seeds; each cell has its own recipe."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from artifacts.schema import Name
from flows.recipes.recipe import Recipe, change
from flows.recipes.yaml_layers import Keys, Layer, hint, override
from pipeline.ablation.config import SEEDED, UNTUNED, Negatives
from pipeline.config import Config, Seed, Whole
from pipeline.errors import InputError
from pipeline.evaluate.config import Measure
from pipeline.evaluate.significance import Test
from tasks.page import key

MOST = 1_000_000_000
"""Training questions: more than any collection has."""
Size = Annotated[Whole, Field(ge=1, le=MOST)] | None
"""Training questions; None: all."""
FIXED: dict[str, list[Keys]] = {
    "seeds": [tuple(field.split(".")) for field in SEEDED],
    "sizes": [("train_subset", "queries")],
}
"""Fields of the recipe that these of the ablation give."""
GIVEN = {field: f"{name} give {'.'.join(field)}" for name, fields in FIXED.items() for field in fields} | {
    ("attention", "corpus"): "all rows have attention.corpus=collection"
}
"""Fields that no setting can change, and why."""
ROUNDS = {("rounds", "number"): "negatives give rounds.number"}
"""Where it is not what the settings make it."""
NONE_ALONE = "none trains nothing: bm25, mined or fusion must stand beside it"
"""Why negatives cannot be [none]."""
SHARED = [("ingest",), ("evaluate", "relevance")]
"""Fields that decide which questions are measured."""


def plain(label: str) -> str:
    """A row's name as it is. Raises ValueError for one that tasks and tables could not carry."""
    if not re.fullmatch(r"\w[\w.+-]*( [\w.+-]+)*", label):
        raise ValueError(
            "a row's name has letters, digits, . _ + - and single spaces between them, a letter, digit or _ first"
        )
    return label


Label = Annotated[str, AfterValidator(plain)]


class Row(Config):
    """A model that is compared."""

    set: list[str]
    """`stage.field=value` settings that make it of the ablation's recipe. A list in the place of the row is these."""
    start: str | None
    """The row whose pre-trained model, with its head, it goes on from in the place of the initial one. null: none.
    With it `set` may go without."""

    @model_validator(mode="before")
    @classmethod
    def _settings_alone(cls, given: Any) -> Any:
        if isinstance(given, list):
            return {"set": given, "start": None}
        return {"set": [], **given} if isinstance(given, dict) and "start" in given else given


class Ablation(Config):
    """Complete: no field has a default. flows/ablations/file.py reads one from its file."""

    name: Name
    """The file without `.yaml`."""
    title: str = Field(min_length=1)
    """One line for the listing and the page."""
    description: str
    """What it needs, takes and gives, in a few lines."""
    hidden: bool
    """Left out of the listing: for tests, or to be extended."""
    recipe: Recipe
    """What all cells share; the file names it."""
    set: list[str]
    """Settings of all cells, under those of sizes and rows."""
    rows: dict[Label, Row] = Field(min_length=1)
    """The models by the names that tables give them, in their order."""
    negatives: list[Negatives] = Field(min_length=1)
    """The tables' columns. `none`: the model before fine-tuning, once for all sizes and seeds; it cannot be alone.
    `bm25`: what stage 1 gives. `mined`: what the last stage 2 gives; it alone asks for mining and stage 2. `fusion`:
    BM25 joined with the last dense run."""
    sizes: list[Size] = Field(min_length=1)
    """Training questions, the first of one seeded shuffle, so that smaller sets lie within larger ones. null: all."""
    by_size: dict[int, list[str]]
    """Settings of the cells of a size, such as more epochs for fewer questions."""
    seeds: list[Seed] = Field(min_length=1)
    """Of fine-tuning alone, so that rows are pre-trained once: stage 1 has the seed, stage 2 the next number, as in the
    recipes."""
    reference: str
    """The row that the others are tested against."""
    measures: list[Measure] = Field(min_length=1)
    """What the table shows, such as RR@10; table.json has all."""
    test: Test
    """Of differences from the reference, paired by question."""
    samples: Whole = Field(ge=100, le=1_000_000)
    """Resamples of the questions, for intervals and the randomisation test."""
    test_seed: Seed
    """Of the resamples."""

    @model_validator(mode="after")
    def _names_are_known_and_told_apart(self) -> Self:
        for field in ("negatives", "sizes", "seeds", "measures"):
            given = getattr(self, field)
            if len({*given}) < len(given):
                raise ValueError(f"{field}: one appears twice")
        if self.negatives == [UNTUNED]:
            raise ValueError(f"negatives: {NONE_ALONE}")
        if self.reference not in self.rows:
            raise ValueError(f"reference: {self.reference!r} is not among the rows{hint(self.reference, self.rows)}")
        by_key: dict[str, str] = {}
        for label in self.rows:
            if label.lower() == "bm25":
                raise ValueError(f"rows.{label}: the tables' first row is called so")
            other = by_key.setdefault(key("row", label), label)
            if other != label:
                alike = "capitals and signs tell no two rows apart"
                raise ValueError(f"rows.{label}: Prefect's page cannot tell it from {other}: {alike}")
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
    """The row and those it goes on from, first ones last. Raises ValueError for an unknown row and for a circle."""
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

    Raises InputError, naming the row, where its settings and the recipe do not go together.
    """
    return [
        _cell(ablation, label, size, seed)
        for label in (ablation.rows if rows is None else rows)
        for size in ablation.sizes
        for seed in ablation.seeds
    ]


class SettingError(InputError):
    """A row and the recipe do not go together."""

    def __init__(self, row: str, keys: Keys, why: str) -> None:
        super().__init__(f"row {row}: {why}")
        self.keys = keys
        """What of the ablation is to blame."""
        self.why = why


def _cell(ablation: Ablation, label: str, size: int | None, seed: int) -> Cell:
    row = ("rows", label)
    given: dict[Keys, list[str]] = {
        ("set",): ablation.set,
        ("by_size", str(size)): ablation.by_size.get(size, []) if size else [],
        row: ablation.rows[label].set,
    }
    mined = "mined" in ablation.negatives
    # Stage 2 is not looked at where it does not run.
    stages: dict[Keys, list[str]] = {} if mined else {("negatives",): ["rounds.number=0"]}
    own = _changed(ablation.recipe, stages | given, label)
    rounds = max(own.rounds.number, 1) if mined else 0
    for keys, settings in given.items():
        _check_settings(settings, keys, label, GIVEN if rounds == own.rounds.number else GIVEN | ROUNDS)
    fixed: dict[Keys, list[str]] = {
        ("sizes",): [f"{'.'.join(field)}={size or 'null'}" for field in FIXED["sizes"]],
        ("negatives",): [f"rounds.number={rounds}"],
        ("seeds",): [f"{'.'.join(field)}={seed + (field[0] == 'stage2')}" for field in FIXED["seeds"]],
        # All rows' attention is looked at on the same sections, whether or not they read general text.
        row: ["attention.corpus=collection"],
    }
    return Cell(label, size, seed, _changed(own, fixed, label))


def _changed(recipe: Recipe, given: dict[Keys, list[str]], label: str) -> Recipe:
    """The recipe with settings, by what of the ablation gives them."""
    try:
        return change(recipe, [setting for settings in given.values() for setting in settings])
    except InputError as error:
        why = str(error)
        blamed = (keys for keys, own in reversed(given.items()) if any(why.startswith(f"--set {one}: ") for one in own))
        raise SettingError(label, next(blamed, ("rows", label)), why) from None


def _check_settings(settings: Sequence[str], keys: Keys, label: str, fixed: Mapping[Keys, str]) -> None:
    """Raises SettingError for what would be overwritten without a word, and for questions that differ by cell."""
    layer = override(Layer({}), settings)
    wrong = {field: f"in an ablation {why}" for field, why in fixed.items()}
    if keys != ("set",):
        same = "all cells are measured on the same questions"
        wrong |= {field: f"{same}: {'.'.join(field)} may only stand under `set`" for field in SHARED}
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
