"""`--model`, `--adapt` and `--collection` of `run` and `plan`: a recipe fine-tunes an existing model on a collection,
or adapts it without questions.

The options become settings of the recipe. So the record of the run, the command in its report, `update` and Prefect's
page have them as they have every other setting.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from artifacts.store import Store
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from flows.recipes.yaml_layers import Keys, Layer
from flows.runs.adaptation import adaptation, check_adapts
from flows.runs.find_collection import Collection, find_collection
from flows.runs.find_model import Model, check_agreement, find_model
from pipeline.dense.shape_checks import dimension
from pipeline.errors import InputError
from pipeline.generate.config import SOURCES
from pipeline.modeling.model_files.existing_model import unnamed_pooling
from pipeline.runtime.work import DeviceName

TRAINING_RECIPE = "adapt"
"""The recipe with the training of an existing model."""
GENERATED_RECIPE = "generated"
"""The one where a language model writes the training questions."""
LABELS: dict[str, tuple[str, ...]] = {
    "stage2": ("loss", "teacher_temperature"),
    "fusion_labels": ("negatives_from", "negative_depth"),
}
"""Its fields that make a training on such questions gentle: soft labels instead of one right passage."""
TRAINING = ("epochs", "batch_queries", "temperature", "dropout", "optimiser", "merge")
TAKEN = {
    "stage1": TRAINING,
    "stage2": TRAINING,
    "cross_encoder": ("dropout", "optimiser"),
    "mine": ("margin_absolute", "margin_relative"),
}
"""Its fields that depend on the model. The others depend on the collection, and stay those of the user's recipe."""
PRETRAININGS = ("ict", "condenser", "cocondenser")
UNSCALED = 1.0
"""Temperature for vectors of any length, as in the papers: their inner products are large."""


@dataclass(frozen=True)
class FineTuning:
    """What the user's options mean for a recipe."""

    settings: list[str]
    """Of the recipe: those of the model and of the collection, then the user's."""
    notes: list[str]
    """Lines about the model, for the user."""


def fine_tuning(
    store: Store,
    recipe: str,
    model: str | None,
    collection: str | None,
    settings: Iterable[str] = (),
    adapt: bool = False,
    device: DeviceName | None = None,
) -> FineTuning:
    """Returns the settings that fine-tune `model` on `collection` by the recipe; None: as the recipe says.

    `adapt`: nothing is fine-tuned; the model is adapted without questions, as suits `device` (None: the recipe's), and
    the search uses it.

    What the user's own file sets stays, and so do `settings`. Raises InputError if there is no such model or
    collection, if training cannot start from the model, and if the recipe or `settings` contradict one of them.
    """
    settings = list(settings)
    layer = yaml_layers.read(recipe)
    if adapt and model is None:
        raise InputError("--adapt: needs --model, the model to adapt")
    target = _target(collection, layer, settings, adapt) if collection is not None else None
    bi_encoder = find_model(store, model) if model is not None else None
    fields: dict[Keys, Any] = {}
    if target is not None:
        fields |= _of_collection(target, layer)
    if bi_encoder is not None and adapt:
        fields |= _of_adapted(bi_encoder, layer, adaptation(yaml_layers.override(layer, settings), device))
    elif bi_encoder is not None:
        _check_start(bi_encoder)
        fields |= _of_model(bi_encoder, layer)
        fields |= _of_generated_questions(layer, settings)
    changes = [_setting(keys, value) for keys, value in fields.items() if _value(layer, keys) != value]
    every = [*changes, *settings]
    complete = resolve(recipe, every)
    if target is not None:
        _check_collection(complete, target)
    if adapt:
        check_adapts(complete)
    if bi_encoder is not None:
        _check_model(complete, bi_encoder, adapt)
    return FineTuning(every, _notes(complete, bi_encoder, adapt) if bi_encoder else [])


def _target(collection: str, layer: Layer, settings: Iterable[str], adapt: bool) -> Collection:
    """The collection to train on. It needs no training questions if a language model writes them, or to `adapt`."""
    try:
        return find_collection(collection, trains=not adapt)
    except InputError:
        if not _writes_questions(layer, settings):
            raise
        return find_collection(collection)


def _writes_questions(layer: Layer, settings: Iterable[str]) -> bool:
    section = yaml_layers.override(layer, settings).data.get("generate", {})
    return any(section.get(name) is not None for name in SOURCES)


def _of_collection(target: Collection, layer: Layer) -> dict[Keys, Any]:
    """The fields of a collection. Another reader replaces the whole section."""
    ingest: dict[Keys, Any] = {("ingest",): target.ingest}
    if target.ingest["reader"] == "beir" == layer.data.get("ingest", {}).get("reader"):
        ingest = {("ingest", "folder"): target.ingest["folder"]}
    return ingest | dict(_unset(layer, target.more))


def _of_model(model: Model, layer: Layer) -> dict[Keys, Any]:
    """The fields of an existing model: where it is, how it reads texts, and its training, without pre-training."""
    folder, tokens = str(model.folder), model.passage_tokens
    place = {
        ("tokenizer", "pretrained"): None,
        ("tokenizer", "path"): str(model.question.folder),
        ("initial", "pretrained"): None,
        ("initial", "checkpoint"): folder,
    }
    source = yaml_layers.read(TRAINING_RECIPE).data
    training = {name: {field: source[name][field] for field in fields} for name, fields in TAKEN.items()}
    for name in ("stage1", "stage2"):
        training[name]["passage_tokens"] = tokens
        if not model.encoder["normalise"]:
            training[name]["temperature"] = UNSCALED
    without = {name: {"budget": None} for name in PRETRAININGS}
    sections = {"encoder": model.encoder, "encode": {"passage_tokens": tokens}, **training, **without}
    return place | dict(_unset(layer, sections))


def _of_adapted(model: Model, layer: Layer, adapt: Mapping[str, Any]) -> dict[Keys, Any]:
    """The fields of an existing model that is not trained: as in `evaluate-model --adapt`."""
    place: dict[Keys, Any] = {
        ("model",): str(model.folder),
        ("tokenizer", "pretrained"): None,
        ("tokenizer", "path"): str(model.question.folder),
    }
    if _value(layer, ("adapt", "queries")) is None:  # no adaptation, which the user wants
        place["adapt", "queries"] = adapt["queries"]
    sections = {
        "encoder": model.encoder,
        "encode": {"passage_tokens": model.passage_tokens},
        "adapt": {"trains": adapt["trains"]},
        "evaluate": {"fusions": [["bm25", "model"]]},
        "attention": {"sections": 0},  # compares pre-trainings
    }
    return place | dict(_unset(layer, sections))


def _of_generated_questions(layer: Layer, settings: Iterable[str]) -> dict[Keys, Any]:
    """Soft labels by the fusion if a language model writes questions, unless the user chooses how stage 2 learns."""
    chosen = {setting.partition("=")[0].partition(".")[::2] for setting in settings}
    if not _writes_questions(layer, settings) or {("stage2", "loss"), ("fusion_labels", "")} & chosen:
        return {}
    source = yaml_layers.read(GENERATED_RECIPE).data
    sections = {name: {field: source[name][field] for field in fields} for name, fields in LABELS.items()}
    fields = dict(_unset(layer, sections))
    return fields if ("stage2", "loss") in fields else {}


def _unset(layer: Layer, sections: Mapping[str, Any]) -> Iterator[tuple[Keys, Any]]:
    """The fields of these sections that no file of the user sets."""
    for keys, value in _fields(sections, ()):
        if not (keys in layer.origins and layer.folder(keys)):
            yield keys, value


def _fields(value: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _fields(item, (*keys, name))
    else:
        yield keys, value


def _value(layer: Layer, keys: Keys) -> Any:
    """The recipe's own value of a field; another object if it has none."""
    value: Any = layer.data
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return layer
        value = value[key]
    return value


def _setting(keys: Keys, value: Any) -> str:
    """Quoted as JSON, which YAML reads as the same text."""
    return f"{'.'.join(keys)}={json.dumps(value, ensure_ascii=False)}"


def _check_start(model: Model) -> None:
    """Raises InputError for a model that can be evaluated, but that no training can start from."""
    if not model.encoder["tied"]:
        raise InputError(
            f"model {model.folder}: has an encoder for questions and one for passages, but training starts from one"
        )
    if model.question.folder != model.folder:
        raise InputError(
            f"model {model.folder}: its weights are in {model.question.folder.name}/, but training reads them next to "
            "modules.json: save it again with sentence-transformers 5"
        )


def _check_collection(recipe: Recipe, target: Collection) -> None:
    """Raises InputError if a setting names another collection."""
    for field in ("reader", "folder", "collection"):
        value = target.ingest.get(field)
        here = getattr(recipe.ingest, field, None)
        if value is not None and str(here) != value:
            raise InputError(f"ingest.{field}: {here}, but --collection has {value}")


def _check_model(recipe: Recipe, model: Model, adapt: bool) -> None:
    """Raises InputError if the recipe or a setting contradicts the model's folder, or starts from another model."""
    if adapt:
        if recipe.model != model.folder:
            raise InputError(f"model: {recipe.model}, but --model has {model.folder}")
        check_agreement(recipe, model)
        return
    if recipe.model is not None:
        raise InputError(f"model: {recipe.model} replaces all training, but --model names a model to train: set null")
    for name in PRETRAININGS:
        checkpoint = getattr(recipe, name).checkpoint
        if checkpoint is not None:
            raise InputError(f"{name}.checkpoint: {checkpoint}, but --model starts from {model.folder}")
    places = {
        "initial.checkpoint": (recipe.initial.checkpoint, model.folder),
        "tokenizer.path": (recipe.tokenizer.path, model.question.folder),
    }
    for field, (value, folder) in places.items():
        if value != folder:
            raise InputError(f"{field}: {value}, but --model has {folder}")
    check_agreement(recipe, model)


def _notes(recipe: Recipe, model: Model, adapt: bool) -> list[str]:
    encoder = recipe.encoder
    size = dimension(model.folder)
    parts = [
        f"{encoder.pooling} pooling, {'vectors of length 1' if encoder.normalise else 'no normalisation'}",
        f"{size} dimensions",
        f"questions to {encoder.question_tokens} tokens, passages to {recipe.encode.passage_tokens}",
        *(
            f"{name} prefix {prefix!r}"
            for name, prefix in (("question", encoder.question_prefix), ("passage", encoder.passage_prefix))
            if prefix
        ),
    ]
    how = (
        f"adapted without questions (adapt.trains={recipe.adapt.trains})"
        if adapt
        else f"trained as in the recipe {TRAINING_RECIPE}, without pre-training"
    )
    lines = [f"model: {model.name} ({', '.join(parts)}), {how}"]
    unnamed = unnamed_pooling(model.question.pooling, encoder.pooling)
    return [*lines, unnamed] if unnamed else lines
