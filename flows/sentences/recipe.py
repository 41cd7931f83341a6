"""A recipe of sentence tasks: its models, its table and its training sizes. All fields are required."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from artifacts.schema import Name
from flows.recipes import yaml_layers
from flows.recipes.recipe import validate
from pipeline import paths
from pipeline.config import Config, Seed
from pipeline.runtime.work import Machine
from pipeline.sentences.model import SentenceEncoder
from pipeline.sentences.readers import LabelledConfig, ScoredConfig, TripletConfig
from pipeline.sentences.tune import TuneTraining

HUB = "hub:"
ALL = "all"
"""The size with all training rows."""


def _check_home(source: str) -> str:
    paths.expand_home(source)
    return source


Source = Annotated[str, AfterValidator(_check_home)]


class Nli(Config):
    """A training on labelled pairs before the training of the task (row BERT + NLI of the Condenser paper)."""

    models: list[str]
    """Labels of the models with an additional row `LABEL + NLI`. Empty: all models."""
    table: LabelledConfig
    epochs: int = Field(ge=1)
    """1 in Sentence-BERT, section 3."""
    training: TuneTraining


class Published(Config):
    """Published figures, shown together with the figures of the run."""

    source: str
    """The publication, and the kind of model."""
    rows: dict[str, dict[str, float]]
    """{model: {size: figure in percent}}."""


class SentenceRecipe(Config):
    name: Name
    """The recipe's file without `.yaml`."""
    title: str
    """One line for the list of recipes."""
    description: str
    """What the recipe needs and what it measures."""
    hidden: bool
    """True: not in the list of recipes, because other recipes extend it."""
    models: dict[Annotated[str, Field(pattern=r"^\w[\w .+-]*$")], Source | None]
    """Rows of the table: {label: a folder, RECIPE:NODE of the store's newest run (`marco:condenser`), or hub:NAME with
    or without @REVISION}. null leaves out a model of the extended recipe."""
    tokenizer: Path | None
    """For models without a tokenizer: a folder with one, or a WordPiece `vocab.txt` like that of uncased BERT."""
    encoder: SentenceEncoder
    table: Annotated[ScoredConfig | TripletConfig, Field(discriminator="kind")]
    """Training, dev and test rows."""
    nli: Nli | None
    """null: no training on labelled pairs."""
    sizes: dict[str, list[Annotated[int, Field(ge=0)]]]
    """{number of training rows, or `all`: numbers of epochs, one of which dev chooses}. An empty list leaves the size
    out. `"0": [0]` is the model without training."""
    repeats: int = Field(ge=1, le=99)
    """Trainings per cell. Their seeds are training.seed and the next numbers."""
    training: TuneTraining
    bootstrap_samples: int = Field(ge=100)
    """Number of resamples of the test rows for each 95 % interval."""
    seed: Seed
    """Random seed for resampling."""
    published: Published | None
    machine: Machine
    """How to run. It changes no result and is not part of a key."""

    @property
    def used_models(self) -> dict[str, str]:
        """The models that are not left out."""
        return {label: source for label, source in self.models.items() if source is not None}

    @property
    def nli_models(self) -> list[str]:
        """Labels of the models with an additional row."""
        if self.nli is None:
            return []
        return [label for label in self.used_models if not self.nli.models or label in self.nli.models]

    @property
    def rows(self) -> list[str]:
        """Labels of the table's rows in order: each model, then its training on labelled pairs."""
        rows: list[str] = []
        for label in self.used_models:
            rows += [label, with_nli(label)] if label in self.nli_models else [label]
        return rows

    @field_validator("sizes", mode="before")
    @classmethod
    def _sizes_are_texts(cls, sizes: Any) -> Any:
        return {str(size): epochs for size, epochs in sizes.items()} if isinstance(sizes, dict) else sizes

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for size, epochs in self.sizes.items():
            if size != ALL and not re.fullmatch("0|[1-9][0-9]*", size):
                raise ValueError(f"sizes.{size}: must be a number of training rows, or {ALL}")
            if epochs and (size == "0") != (epochs == [0]):
                raise ValueError(f"sizes.{size}: 0 training rows need the list [0], and only they can have 0 epochs")
            if len({*epochs}) != len(epochs):
                raise ValueError(f"sizes.{size}: a number of epochs appears twice")
        if not any(self.sizes.values()):
            raise ValueError("sizes: no size has epochs, so nothing is measured")
        if not self.used_models:
            raise ValueError("models: the recipe has no model")
        if self.nli is not None:
            unknown = [label for label in self.nli.models if label not in self.used_models]
            if unknown:
                known = ", ".join(self.used_models)
                raise ValueError(f"nli.models: {unknown[0]!r} is not one of the models ({known})")
            if self.nli.table.dev is None and self.nli.training.keep == "best":
                raise ValueError("nli.training.keep: best needs nli.table.dev")
        by_slug: dict[str, str] = {}
        for label in self.rows:
            if slug(label) in by_slug:
                raise ValueError(
                    f"models: the rows {by_slug[slug(label)]!r} and {label!r} have the same letters and digits"
                )
            by_slug[slug(label)] = label
        return self


def with_nli(label: str) -> str:
    """The label of a model's additional row."""
    return f"{label} + NLI"


def slug(label: str) -> str:
    """A label as part of a node's name: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "model"


def resolve_sentences(name: str, settings: Iterable[str] = ()) -> SentenceRecipe:
    """The complete recipe with settings `section.field=value`. Raises InputError like flows/recipes/recipe.py."""
    layer = yaml_layers.override(yaml_layers.read(name, yaml_layers.SENTENCES), settings)
    recipe = validate(layer, SentenceRecipe)
    models = {
        label: source and _located(source, layer.folder(("models", label))) for label, source in recipe.models.items()
    }
    return recipe.model_copy(update={"models": models})


def _located(source: str, folder: Path | None) -> str:
    """A relative folder in a user's recipe counts from the folder of that file."""
    path = None if folder is None else folder_of(source, folder)
    return source if path is None else str(path)


def folder_of(source: str, folder: Path | None = None) -> Path | None:
    """The folder of a model's source, whether it exists or not. None for hub:NAME, and for RECIPE:NODE of the store."""
    if source.startswith(HUB):
        return None
    path = paths.relative_to(folder, source)
    nested = Path(source).parent != Path() and path.parent.is_dir()
    return path if ":" not in source or path.is_dir() or nested else None
