"""New and changed files: a finished run of a recipe once more, with its model as it is."""

import json
from collections.abc import Mapping
from datetime import datetime

from artifacts.records import Ref
from artifacts.store import Store
from flows.graph.run_schema import recipe_of
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from flows.serving.engine import Engine, engines
from pipeline.errors import InputError
from pipeline.formatting import counted


def update(store: Store, recipe: str, given: list[str]) -> tuple[Recipe, list[str], Engine]:
    """The recipe and the settings that take the files in, and the run whose last dense model they go on with.

    That is the newest finished run of `recipe`, of the same files where there is one; its settings hold again, under
    those `given`. Raises InputError where there is none, or where another `encoder` would read the texts than the
    model's own.
    """
    name = str(yaml_layers.read(recipe).data["name"])
    found = [engine for engine in engines(store, name, "dense") if engine.metrics["dense"] and engine.is_there()]
    if not found:
        raise InputError(
            f"{store.root}: no finished run of {name} with a model to go on with; `cocondenser run {recipe}` makes one"
        )
    engine = next((engine for engine in found if _same_files(engine, recipe, given)), found[0])
    settings = _settings(engine, given)
    resolved = resolve(recipe, settings)
    was, now = recipe_of(engine.run, "encoder")["encoder"], resolved.encoder.model_dump(mode="json")
    for field in was:
        if now.get(field) != was[field]:
            raise InputError(f"encoder.{field}: {now.get(field)}, but the model was trained with {was[field]}")
    return resolved, settings, engine


def taken_in(store: Store, refs: Mapping[str, Ref], begun: datetime) -> dict[str, int]:
    """What an update `begun` then (with its time zone) has done: counts of the whole texts and of their shards."""
    ingest = refs.get("ingest-whole") or refs["ingest"]
    encode = refs.get("encode-whole") or refs["encode-model"]
    record = store.record(encode.key)
    again = record is not None and datetime.fromisoformat(record.created) >= begun
    shards = encode.metrics["shards"]
    reused = encode.metrics["shards_reused"] if again else shards  # the metrics are of the run that made them
    counts = {name: ingest.metrics[name] for name in ("documents", "passages")}
    return {**counts, "shards": shards, "shards_encoded": shards - reused, "shards_reused": reused}


def described(done: Mapping[str, int]) -> str:
    """The line on what `taken_in` gives."""
    texts = ", ".join(counted(done[name], name) for name in ("documents", "passages"))
    shards = f"{done['shards_encoded']:,} of {counted(done['shards'], 'shards')} encoded again"
    return f"{texts}: {shards}, {done['shards_reused']:,} reused"


def _same_files(engine: Engine, recipe: str, given: list[str]) -> bool:
    """Whichever of their columns are kept."""
    asked, had = resolve(recipe, _settings(engine, given)).ingest, recipe_of(engine.run, "ingest")["ingest"]
    return {**asked.model_dump(mode="json"), "metadata": None} == {**had, "metadata": None}


def _given_settings(engine: Engine) -> list[str]:
    given = engine.run.details.get("set")
    if not isinstance(given, list) or not all(isinstance(setting, str) for setting in given):
        raise InputError(f"the record of the run of {engine.run.name} does not say its settings")
    return given


def _settings(engine: Engine, given: list[str]) -> list[str]:
    """The run's, those `given`, and its model and tokenizer in the place of a training."""

    def path(node: str) -> str:
        return json.dumps(str(engine.run.nodes[node].path), ensure_ascii=False)  # quoted: YAML reads it as a text

    adopted = {
        "model": path(engine.model),
        "rerank": "null",
        "attention.sections": "0",  # the model is as it was
        "tokenizer.pretrained": "null",
        "tokenizer.path": path("tokenizer"),
    }
    # An update's own settings are those of the run before and so on: none is to stand twice.
    before = [setting for setting in _given_settings(engine) if setting.partition("=")[0] not in adopted]
    alone = "evaluate.fusions=[]"  # they may join runs that an update does not make
    last = [setting for setting in before if setting not in (alone, *given)]
    return [*last, alone, *given, *(f"{field}={value}" for field, value in adopted.items())]
