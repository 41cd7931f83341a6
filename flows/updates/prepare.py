"""Updates of a collection: the nodes of a finished run again, with new files and the same model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from artifacts.runs import SERIES, series_of
from artifacts.store import Store
from flows.graph.ineffective_settings import ineffective_settings
from flows.graph.prepare import Device, Run, prepare
from flows.graph.run_schema import recipe_of
from flows.graph.selection import store_to_fill
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from flows.runs.series import trained_run
from flows.serving.engine import Engine, evaluated_engines
from flows.updates.judged import JudgedQuestions, answerable, check_grades, read_judged
from pipeline.errors import InputError
from pipeline.evaluate.compare import known_measure
from pipeline.evaluate.measures import MEASURES
from pipeline.paths import expand_home

MEASURE = "RR@10"
"""As in `compare`."""


@dataclass(frozen=True)
class Update:
    """An update before its first stage."""

    run: Run[Recipe]
    engine: Engine
    """The run whose model it uses."""
    measure: str
    judged: JudgedQuestions | None
    """Test questions instead of the run's."""


def prepare_update(
    recipe: str,
    changes: Sequence[str] = (),
    judged: str | Path | None = None,
    measure: str = MEASURE,
    store: str | Path | None = None,
    device: Device = None,
) -> Update:
    """Prepares an update for the command line and for the flow. `judged`: a folder in BEIR's layout.

    Raises InputError or StoreError for everything that will certainly fail.
    """
    artifact_store = store_to_fill(store)
    questions = None if judged in (None, "") else read_judged(expand_home(judged, "judged"))
    known = known_measure(measure)
    if questions is not None and known not in MEASURES:
        raise InputError(f"--measure {measure}: needs answers, and {questions.folder} has judgements")
    resolved, settings, engine = resolve_update(artifact_store, recipe, [*changes])
    if questions is not None:
        check_grades(questions, resolved.evaluate.relevance)
        answerable(questions, [trained_run(artifact_store, engine)], resolved.evaluate.relevance)
    run = prepare(resolved, settings, store=artifact_store.root, device=device)
    parameters = {
        "recipe": recipe,
        "set": [*changes],
        "judged": None if questions is None else str(questions.folder),
        "measure": known,
        "store": str(artifact_store.root),
        "device": device,
    }
    details = {**run.details, SERIES: series_of(engine.run)}
    return Update(replace(run, parameters=parameters, details=details), engine, known, questions)


def ineffective_changes(one: Update) -> list[str]:
    """Returns a line for each setting of the update, not of its run, that changes nothing."""
    recipe, changes = (one.run.parameters[name] for name in ("recipe", "set"))
    return ineffective_settings(partial(resolve, recipe), one.run.details["set"], changes)


def resolve_update(store: Store, recipe: str, changes: list[str]) -> tuple[Recipe, list[str], Engine]:
    """(the recipe of the update, its settings, the run whose last dense model it uses).

    This run is the newest finished run of `recipe`, of the same files if there is one. The update has its settings,
    then the settings `changes`. Raises InputError if there is no such run, or if the recipe's `encoder` differs from
    the model's.
    """
    name = str(yaml_layers.read(recipe).data["name"])
    candidates = [
        engine for engine in evaluated_engines(store, name, "dense") if engine.metrics["dense"] and engine.is_complete()
    ]
    if not candidates:
        raise InputError(f"{store.root}: no finished run of {name} with a model; `cocondenser run {recipe}` makes one")
    engine = next((one for one in candidates if _has_same_files(one, recipe, changes)), candidates[0])
    settings = _settings(engine, changes)
    resolved = resolve(recipe, settings)
    trained, requested = recipe_of(engine.run, "encoder")["encoder"], resolved.encoder.model_dump(mode="json")
    for field in trained:
        if field != "dimensions" and requested.get(field) != trained[field]:
            raise InputError(
                f"encoder.{field}: {requested.get(field)}, but the model was trained with {trained[field]}"
            )
    return resolved, settings, engine


def _has_same_files(engine: Engine, recipe: str, changes: list[str]) -> bool:
    """Whether the run has read the files of the update. The metadata columns may differ."""
    new = resolve(recipe, _settings(engine, changes)).ingest.model_dump(mode="json")
    old = recipe_of(engine.run, "ingest")["ingest"]
    return {**new, "metadata": None} == {**old, "metadata": None}


def _settings_of_run(engine: Engine) -> list[str]:
    settings = engine.run.details.get("set")
    if not isinstance(settings, list) or not all(isinstance(setting, str) for setting in settings):
        raise InputError(f"the record of the run of {engine.run.name} does not say its settings")
    return settings


def _settings(engine: Engine, changes: list[str]) -> list[str]:
    """The run's settings, then `changes`, then the run's model and tokenizer instead of a training."""

    def path(node: str) -> str:
        return json.dumps(str(engine.run.nodes[node].path), ensure_ascii=False)  # quoted: YAML then reads it as text

    adopted = {
        "model": path(engine.model),
        "adapt.queries": "null",  # the model has been adapted
        "encoder.dimensions": "null",  # its prefixes have been trained
        "evaluate.others": "[]",  # there is no start to compare it with
        "rerank": "null",
        "attention.sections": "0",  # the model has not changed
        "tokenizer.pretrained": "null",
        "tokenizer.path": path("tokenizer"),
    }
    # An update of an update repeats the earlier settings: none may appear twice.
    before = [setting for setting in _settings_of_run(engine) if setting.partition("=")[0] not in adopted]
    no_fusions = "evaluate.fusions=[]"  # they may combine runs that an update does not have
    earlier = [setting for setting in before if setting not in (no_fusions, *changes)]
    return [*earlier, no_fusions, *changes, *(f"{field}={value}" for field, value in adopted.items())]
