"""Updates of a collection: the nodes of a finished run again, with new files and the same model."""

import json
from collections.abc import Mapping
from datetime import datetime

from artifacts.records import Ref
from artifacts.store import Store
from flows.graph.run_schema import recipe_of
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from flows.serving.engine import Engine, evaluated_engines
from pipeline.errors import InputError
from pipeline.formatting import counted


def prepare_update(store: Store, recipe: str, changes: list[str]) -> tuple[Recipe, list[str], Engine]:
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
        if requested.get(field) != trained[field]:
            raise InputError(
                f"encoder.{field}: {requested.get(field)}, but the model was trained with {trained[field]}"
            )
    return resolved, settings, engine


def update_counts(store: Store, refs: Mapping[str, Ref], started: datetime) -> dict[str, int]:
    """Counts of documents, passages and shards of an update. `started`: with time zone."""
    ingest = refs.get("ingest-whole") or refs["ingest"]
    encode = refs.get("encode-whole") or refs["encode-model"]
    record = store.record(encode.key)
    is_new = record is not None and datetime.fromisoformat(record.created) >= started
    shards = encode.metrics["shards"]
    reused = encode.metrics["shards_reused"] if is_new else shards  # an older artifact has the counts of its own build
    counts = {name: ingest.metrics[name] for name in ("documents", "passages")}
    return {**counts, "shards": shards, "shards_encoded": shards - reused, "shards_reused": reused}


def update_summary(counts: Mapping[str, int]) -> str:
    """One line with the counts of `update_counts`."""
    texts = ", ".join(counted(counts[name], name) for name in ("documents", "passages"))
    shards = f"{counts['shards_encoded']:,} of {counted(counts['shards'], 'shards')} encoded again"
    return f"{texts}: {shards}, {counts['shards_reused']:,} reused"


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
