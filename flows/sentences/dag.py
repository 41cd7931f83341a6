"""The nodes of a recipe of sentence tasks."""

import re
from collections.abc import Mapping
from pathlib import Path

from artifacts.runs import runs
from artifacts.store import Store
from flows.sentences.recipe import ALL, HUB, SentenceRecipe, folder_of, slug, with_nli
from pipeline import paths
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.runtime import hub
from pipeline.sentences.model import SentenceModelConfig
from pipeline.sentences.summary import SummaryConfig, Training
from pipeline.sentences.tune import TuneConfig, TuneTraining
from tasks.node import Node

SUMMARY = "summary"
"""The last node."""


def nodes(recipe: SentenceRecipe, store: Store) -> list[Node]:
    """In the order in which they run. Raises InputError for a model that is not there, and for a name that is taken."""
    made: list[Node] = []

    def node(name: str, stage: str, config: Config, shared: Mapping[str, Config], **inputs: Node) -> Node:
        if any(other.name == name for other in made):
            raise InputError(f"models: two nodes would be called {name}; give one of them another label")
        made.append(Node(name, stage, config, inputs, shared))
        return made[-1]

    encoder = recipe.encoder
    table = node("table", "sentence_table", recipe.table, {})
    starts: dict[str, Node] = {}
    tokenizer = None if recipe.tokenizer is None else _given_tokenizer(recipe.tokenizer)
    sources = {label: model_source(label, given, tokenizer, store) for label, given in recipe.given.items()}
    for label, source in sources.items():
        starts[label] = node(f"model-{slug(label)}", "sentence_model", source, {"encoder": encoder})
    if recipe.nli is not None:
        pairs = node("nli", "sentence_table", recipe.nli.table, {})
        config = TuneConfig(epochs=recipe.nli.epochs, max_rows=None)
        shared = {"training": recipe.nli.training, "encoder": encoder}
        for label in recipe.nli_models:
            trained = node(f"nli-{slug(label)}", "sentence_tune", config, shared, table=pairs, start=starts[label])
            starts[with_nli(label)] = trained

    trainings: list[Training] = []
    tuned: dict[str, Node] = {}
    for label in recipe.rows:
        for size, candidates in recipe.sizes.items():
            rows = 0 if size == ALL else int(size)
            for epochs in candidates:
                for repeat in range(1, (recipe.repeats if epochs else 1) + 1):
                    name = f"{slug(label)}-{size}" + (f"-{epochs}x" if epochs else "")
                    name += f"-{repeat}" if recipe.repeats > 1 and epochs else ""
                    shared = {"training": repeated(recipe.training, repeat), "encoder": encoder}
                    config = TuneConfig(epochs=epochs, max_rows=rows or None)
                    tuned[name] = node(name, "sentence_tune", config, shared, table=table, start=starts[label])
                    one = Training(run=name, model=label, size=rows, epochs=epochs, repeat=repeat)
                    trainings.append(one)
    config_of_all = SummaryConfig(trainings=trainings, bootstrap_samples=recipe.bootstrap_samples, seed=recipe.seed)
    node(SUMMARY, "sentence_summary", config_of_all, {}, **tuned)
    return made


def repeated(training: TuneTraining, repeat: int) -> TuneTraining:
    """The `repeat`-th training, from 1: they differ in their seeds."""
    return training.model_copy(update={"seed": training.seed + repeat - 1})


def _given_tokenizer(tokenizer: Path) -> Path:
    if not tokenizer.exists():
        raise InputError(f"tokenizer: {paths.shown(tokenizer)}: no such file or folder")
    return tokenizer.absolute()


def model_source(label: str, given: str, tokenizer: Path | None, store: Store) -> SentenceModelConfig:
    """What a recipe's model names. Raises InputError, naming the label, where that is not there."""
    if given.startswith(HUB):
        name, _, revision = given.removeprefix(HUB).partition("@")
        if not re.match(hub.HUB_NAME, name):
            raise InputError(f"models.{label}: {given}: no name of a Hugging Face model")
        return SentenceModelConfig(checkpoint=None, pretrained=name, revision=revision or "main", tokenizer=tokenizer)
    path = folder_of(given)
    if path is None:
        recipe, _, rest = given.partition(":")
        path = _of_store(label, recipe, rest, store)
    if not path.is_dir():
        raise InputError(
            f"models.{label}: {paths.shown(path)}: no such folder (nor RECIPE:NODE of the store, nor hub:NAME)"
        )
    return SentenceModelConfig(checkpoint=path.absolute(), pretrained=None, revision="main", tokenizer=tokenizer)


def _of_store(label: str, recipe: str, rest: str, store: Store) -> Path:
    """The folder of `NODE` (or `NODE/query`) of a recipe's newest run that has it."""
    name, _, side = rest.partition("/")
    found = [run for run in runs(store, recipe) if name in run.nodes and run.nodes[name].path.is_dir()]
    if not found:
        raise InputError(
            f"models.{label}: {store.root}: no run of {recipe} with {name}; `cocondenser run {recipe} --until {name}`"
        )
    folder = found[0].nodes[name].path / side
    if not (folder / "config.json").is_file() and not (folder / "query").is_dir():
        raise InputError(f"models.{label}: {name} of {recipe} is no model")
    return folder
