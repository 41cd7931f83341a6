"""A recipe of sentence tasks: which models, on which table, at which sizes. Complete, as the recipes of retrieval."""

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

SENTENCES = yaml_layers.Family(
    Path(__file__).parent, "recipe of sentences", "cocondenser sentences recipes", yaml_layers.own_texts, kind="kind"
)
HUB = "hub:"
ALL = "all"
"""The size that has all training rows."""


def _of_a_known_home(source: str) -> str:
    paths.given(source)
    return source


Source = Annotated[str, AfterValidator(_of_a_known_home)]


class Nli(Config):
    """A training on labelled pairs before the task's own (Condenser's row BERT + NLI)."""

    models: list[str]
    """Labels of the models that get a further row `LABEL + NLI`. Empty: all of them."""
    table: LabelledConfig
    epochs: int = Field(ge=1)
    """1 in Sentence-BERT, section 3."""
    training: TuneTraining


class Published(Config):
    """Figures that were printed elsewhere, shown beside this run's."""

    source: str
    """Where, and of what kind of model."""
    rows: dict[str, dict[str, float]]
    """{model: {size: the figure, of 100}}."""


class SentenceRecipe(Config):
    name: Name
    """The recipe's file without `.yaml`."""
    title: str
    """One line for the listing."""
    description: str
    """What it needs and what it gives."""
    hidden: bool
    """Left out of the listing: a base of others."""
    models: dict[Annotated[str, Field(pattern=r"^\w[\w .+-]*$")], Source | None]
    """Rows of the table by label, each a folder, RECIPE:NODE of the store's newest run (`marco:condenser`), or hub:NAME
    with or without @REVISION; null leaves out one that the recipe below names."""
    tokenizer: Path | None
    """Of models whose folder has none: a folder with a tokenizer, or a WordPiece `vocab.txt` of BERT's uncased kind."""
    encoder: SentenceEncoder
    table: Annotated[ScoredConfig | TripletConfig, Field(discriminator="kind")]
    """What is learnt and measured."""
    nli: Nli | None
    """null: none."""
    sizes: dict[str, list[Annotated[int, Field(ge=0)]]]
    """Training rows (`all`: as many as there are), and for each the numbers of epochs among which dev chooses. An empty
    list leaves the size out; `"0": [0]` is the model as it is."""
    repeats: int = Field(ge=1, le=99)
    """Trainings of each cell; their seeds are training.seed and those that follow it."""
    training: TuneTraining
    bootstrap_samples: int = Field(ge=100)
    """Resamples of the test's rows for each 95 % interval."""
    seed: Seed
    """Seed of the resamples."""
    published: Published | None
    machine: Machine
    """How to run; changes no result and enters no key."""

    @property
    def given(self) -> dict[str, str]:
        """The models that are not left out."""
        return {label: source for label, source in self.models.items() if source is not None}

    @property
    def nli_models(self) -> list[str]:
        """Labels of the models that get a further row."""
        if self.nli is None:
            return []
        return [label for label in self.given if not self.nli.models or label in self.nli.models]

    @property
    def rows(self) -> list[str]:
        """Labels of the table's rows in their order: of each model, and of its training on labelled pairs."""
        rows: list[str] = []
        for label in self.given:
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
                raise ValueError(f"sizes.{size}: a number of training rows, or {ALL}")
            if epochs and (size == "0") != (epochs == [0]):
                raise ValueError(f"sizes.{size}: 0 epochs and 0 training rows go together, with nothing beside")
            if len({*epochs}) != len(epochs):
                raise ValueError(f"sizes.{size}: a number of epochs appears twice")
        if not any(self.sizes.values()):
            raise ValueError("sizes: none has epochs, so that nothing is measured")
        if not self.given:
            raise ValueError("models: none")
        if self.nli is not None:
            unknown = [label for label in self.nli.models if label not in self.given]
            if unknown:
                known = ", ".join(self.given)
                raise ValueError(f"nli.models: {unknown[0]!r} is none of the models ({known})")
            if self.nli.table.dev is None and self.nli.training.keep == "best":
                raise ValueError("nli.training.keep: best needs nli.table.dev")
        by_slug: dict[str, str] = {}
        for label in self.rows:
            if slug(label) in by_slug:
                raise ValueError(
                    f"models: the rows {by_slug[slug(label)]!r} and {label!r} differ in no letter or digit"
                )
            by_slug[slug(label)] = label
        return self


def with_nli(label: str) -> str:
    """The label of a model's further row."""
    return f"{label} + NLI"


def slug(label: str) -> str:
    """A label as part of a node's name: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "model"


def resolve(name: str, settings: Iterable[str] = ()) -> SentenceRecipe:
    """The complete recipe with `section.field=value` settings applied. InputError as in flows/recipes/recipe.py."""
    layer = yaml_layers.override(yaml_layers.read(name, SENTENCES), settings)
    recipe = validate(layer, SentenceRecipe)
    models = {
        label: source and _located(source, layer.folder(("models", label))) for label, source in recipe.models.items()
    }
    return recipe.model_copy(update={"models": models})


def _located(source: str, folder: Path | None) -> str:
    """A model's folder that a user's file names counts from that file's."""
    path = None if folder is None else folder_of(source, folder)
    return source if path is None else str(path)


def folder_of(source: str, folder: Path | None = None) -> Path | None:
    """The folder that a model's source names, there or not; None where it is hub:NAME, or RECIPE:NODE of the store."""
    if source.startswith(HUB):
        return None
    path = paths.beside(folder, source)
    nested = Path(source).parent != Path() and path.parent.is_dir()
    return path if ":" not in source or path.is_dir() or nested else None


def change(recipe: SentenceRecipe, settings: Iterable[str]) -> SentenceRecipe:
    """A complete recipe with settings applied."""
    return validate(yaml_layers.override(yaml_layers.Layer(recipe.model_dump(mode="json")), settings), SentenceRecipe)
