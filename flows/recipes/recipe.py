"""A recipe: everything that a run computes and how, one section a stage."""

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, create_model, model_validator
from pydantic_core import ErrorDetails

from artifacts.schema import Name
from flows.recipes import cross_checks, yaml_layers
from pipeline.bm25.bm25 import BM25Config
from pipeline.config import Config
from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig
from pipeline.cross_encoder.rerank import RerankConfig
from pipeline.cross_encoder.soft_labels import ScoresConfig
from pipeline.data.ingest import IngestConfig
from pipeline.dense.encode import EncodeConfig
from pipeline.dense.index_kinds import IndexConfig
from pipeline.dense.search import SearchConfig
from pipeline.errors import InputError
from pipeline.evaluate.attention import AttentionConfig
from pipeline.evaluate.config import EvaluateConfig
from pipeline.finetune.config import FinetuneConfig
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.initial import InitialConfig
from pipeline.negatives.denoise import DenoiseConfig
from pipeline.negatives.from_file import GivenConfig
from pipeline.negatives.mine import MineConfig
from pipeline.negatives.pseudo_labels import PseudoConfig
from pipeline.paths import beside
from pipeline.pretrain.cocondenser import CocondenserConfig
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.pretrain.inverse_cloze import IctConfig
from pipeline.report.build import ReportConfig
from pipeline.runtime.work import Machine
from pipeline.tokenization.tokenizer import TokenizerConfig
from pipeline.tokenization.tokens import TokensConfig
from tasks.keys import with_paths, without_paths
from tasks.stages import STAGES
from tasks.tracking import Tracking

AnyRecipe = TypeVar("AnyRecipe", bound=BaseModel)


class Rounds(Config):
    """Mining and training in turn."""

    number: int = Field(ge=0, le=9)
    """Times that negatives are mined and stage 2 is trained; from the second on, mined by the last one's model. 0:
    stage 1 alone. 1 in coCondenser."""
    start: Literal["pretrained", "previous"]
    """What each later round trains from: the pre-trained model, or the round's before (ANCE's refresh)."""
    mined_from: Path | None
    """A fine-tuned checkpoint that mines the first round's negatives in the place of stage 1 (Condenser, table 2: its
    BERT row with mined negatives)."""


class Recipe(Config):
    """Complete: no field has a default. `resolve` makes one from a recipe's file and `--set` settings."""

    name: Name
    """The recipe's file without `.yaml`."""
    title: str
    """One line for the listing and the report."""
    description: str
    """What it needs, what it takes and what it gives, in a few lines."""
    example_question: str | None
    """A question that this collection answers, shown at the end of a run."""
    hidden: bool
    """Left out of the listing: a recipe for tests."""

    model: Path | None
    """A finished bi-encoder, whose tokenizer `tokenizer` names: it answers and nothing is trained. null: as below."""
    ingest: IngestConfig
    """The collection that is searched, and its questions."""
    pretraining: IngestConfig | None
    """General text, read by Condenser, by the embeddings of a model from scratch, and by what else names it in its
    field `text`; null: these too take the collection."""
    tokenizer: TokenizerConfig
    tokens: TokensConfig
    encoder: EncoderConfig
    """The bi-encoder: how texts are read and what is made of the last layer, in every stage."""
    initial: InitialConfig
    """The model before any pre-training."""
    ict: IctConfig
    """The Inverse Cloze Task, to compare with; left out where its steps are 0."""
    condenser: CondenserConfig
    cocondenser: CocondenserConfig
    bm25: BM25Config
    stage1: FinetuneConfig
    """Fine-tuning on BM25 negatives."""
    stage2: FinetuneConfig
    """Fine-tuning, again from the pre-trained model, on BM25 and mined negatives."""
    rounds: Rounds
    given: GivenConfig | None
    """Negatives from a file in the place of the first round's mined ones."""
    cross_encoder: CrossEncoderConfig
    """Trained only where a section below, or soft labels in stage 2, need it."""
    ensemble: int = Field(ge=1, le=9)
    """Cross-encoders that rerank together, trained from different seeds."""
    scores: ScoresConfig
    denoise: DenoiseConfig | None
    """Mined negatives without what the cross-encoder takes for relevant; null: as mined."""
    pseudo: PseudoConfig | None
    """Further training questions that the cross-encoder labels; null: none."""
    rerank: RerankConfig | None
    """The last dense run reranked by the cross-encoder; null: not."""
    encode: EncodeConfig
    index: IndexConfig
    search: SearchConfig
    mine: MineConfig
    """Negatives from what stage 1 finds for the training questions."""
    evaluate: EvaluateConfig
    attention: AttentionConfig
    """How widely [CLS] attends before and after fine-tuning, for the report; left out where its sections are 0."""
    report: ReportConfig
    machine: Machine
    """How to run; changes no result and enters no key."""
    tracking: Tracking
    """Where the trainings can be followed; as little."""

    def trains(self, section: Literal["ict", "condenser", "cocondenser"]) -> bool:
        """Whether a pre-training has something to do or to give; else what it would read passes by.

        A coCondenser that trains needs the head that Condenser makes.
        """
        own = getattr(self, section)
        needed = section == "condenser" and self.cocondenser.checkpoint is None and self.cocondenser.steps != 0
        return own.checkpoint is not None or own.steps != 0 or needed

    def section(self, name: str) -> Any:
        """A section that has no field above: of a stage that only flows/dag.py knows. None where it is null."""
        return getattr(self, name)

    @property
    def reads_general_text(self) -> bool:
        """Whether anything is made of the text `pretraining`; what is finished needs nothing that it was made from."""
        if self.cocondenser.checkpoint is not None:
            return False
        corpus_aware = self.trains("cocondenser") and self.cocondenser.text == "pretraining"
        if self.condenser.checkpoint is not None:
            return corpus_aware
        cloze = self.trains("ict") and self.ict.checkpoint is None and self.ict.text == "pretraining"
        begins = self.initial.reads_passages and self.ict.checkpoint is None
        return self.trains("condenser") or corpus_aware or cloze or begins

    @property
    def teaches(self) -> bool:
        """Whether stage 2 needs a cross-encoder."""
        return self.stage2.loss == "soft_labels" or self.denoise is not None or self.pseudo is not None

    @model_validator(mode="after")
    def _stages_fit_together(self) -> Self:
        cross_checks.check(self)
        return self


def _further_sections() -> dict[str, Any]:
    """{name: type} of the sections that the registry names and `Recipe` does not."""
    names = {stage.section: stage for stage in STAGES.values() if stage.section not in ("", *Recipe.model_fields)}
    classes = {name: inspect.signature(stage.function).parameters["config"].annotation for name, stage in names.items()}
    return {name: (found | None, ...) for name, found in classes.items()}


if _further_sections():
    Recipe = create_model("Recipe", __base__=Recipe, __module__=__name__, **_further_sections())  # type: ignore[misc]


def resolve(name: str, settings: Iterable[str] = ()) -> Recipe:
    """The complete recipe `name` (the project's, or a YAML file's path) with `stage.field=value` settings applied.

    An unknown field or a value of the wrong type is an InputError that names the file and line, or the setting.
    """
    return validate(yaml_layers.override(yaml_layers.read(name), settings), Recipe)


def change(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """A complete recipe with `stage.field=value` settings applied."""
    settings = list(settings)
    if not settings:
        return recipe
    return validate(yaml_layers.override(yaml_layers.Layer(recipe.model_dump(mode="json")), settings), Recipe)


def configuration(recipe: Recipe) -> dict[str, Any]:
    """What the recipe computes, as JSON values for the report: without paths, and without what changes no result."""
    left_out = ("machine", "tracking", "report", "hidden")
    return {name: value for name, value in without_paths(recipe).items() if name not in left_out}


def validate(layer: yaml_layers.Layer, model: type[AnyRecipe]) -> AnyRecipe:
    """Raises InputError, with the place. Relative paths that a user's file gives count from that file's folder."""
    try:
        made = model.model_validate(layer.data)
    except ValidationError as error:
        raise InputError(_one_line(error, layer, model)) from None
    return with_paths(made, lambda keys, path: beside(layer.folder(keys), path))


def _one_line(error: ValidationError, layer: yaml_layers.Layer, model: type[BaseModel]) -> str:
    problems = error.errors(include_url=False)
    # A field spelt wrongly is unknown and missing at once; the first says more.
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    keys = tuple(_keys(problem["loc"], layer.data))
    missing = [".".join(_keys(p["loc"], layer.data)) for p in problems if p["type"] == "missing"]
    text = _what(problem, keys, missing, layer, model)
    where = layer.origin(keys)
    if problem["type"] == "value_error" and isinstance(problem["input"], dict):
        where = _blamed(keys, text, layer) or where
    rest = len(problems) - (len(missing) if problem["type"] == "missing" else 1)
    more = f" (and {rest} more)" if rest and problem["type"] != "extra_forbidden" else ""
    return ": ".join(part for part in (where, ".".join(keys), f"{text}{more}") if part)


def _what(
    problem: ErrorDetails, keys: tuple[str, ...], missing: list[str], layer: yaml_layers.Layer, model: type[BaseModel]
) -> str:
    """What is wrong at `keys`. `missing`: all fields that are, for the first of them speaks for the others."""
    match problem["type"]:
        case "missing":
            return ", and so are ".join(part for part in ("missing", ", ".join(missing[1:])) if part)
        case "extra_forbidden":
            return f"unknown field{yaml_layers.hint(keys[-1], fields(keys[:-1], layer.data, model))}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"is a section; a field of it is {'.'.join(keys)}.FIELD"
    given = problem["input"]
    got = "" if isinstance(given, dict) else f" (got {given!r})"
    if problem["type"] in ("list_type", "tuple_type"):
        items = given if isinstance(given, str | int | float) else "A, B"
        return f"a list is expected: write [{items}]{got}"
    if problem["type"] == "path_type":
        number = isinstance(given, int | float)
        return f"a path is expected{', a number in quotes' if number else ''}{got}"
    return problem["msg"].removeprefix("Value error, ") + got


def _blamed(keys: tuple[str, ...], text: str, layer: yaml_layers.Layer) -> str | None:
    """Where the user wrote a field that a message about the section `keys` names: a setting, the recipe, a parent."""
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
    """The names of the fields of the section at `keys`; `data` tells which reader a section has."""
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
    return list(dict.fromkeys(name for model in classes for name in model.model_fields))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if get_origin(annotation) in (Annotated, list):
        yield from _models(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _models(member)
    elif isinstance(annotation, type) and annotation is not NoneType and issubclass(annotation, BaseModel):
        yield annotation
