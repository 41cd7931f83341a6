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


def sentence_nodes(recipe: SentenceRecipe, store: Store) -> list[Node]:
    """The nodes in the order in which they run. Raises InputError for a missing model and for a duplicate name."""
    nodes: list[Node] = []

    def add(name: str, stage: str, config: Config, shared: Mapping[str, Config], **inputs: Node) -> Node:
        if any(other.name == name for other in nodes):
            raise InputError(f"models: two nodes would have the name {name}; choose another label for one of them")
        nodes.append(Node(name, stage, config, inputs, shared))
        return nodes[-1]

    encoder = recipe.encoder
    table = add("table", "sentence_table", recipe.table, {})
    starts: dict[str, Node] = {}
    tokenizer = None if recipe.tokenizer is None else _check_tokenizer(recipe.tokenizer)
    configs = {label: model_config(label, source, tokenizer, store) for label, source in recipe.used_models.items()}
    for label, model in configs.items():
        starts[label] = add(f"model-{slug(label)}", "sentence_model", model, {"encoder": encoder})
    if recipe.nli is not None:
        pairs = add("nli", "sentence_table", recipe.nli.table, {})
        config = TuneConfig(epochs=recipe.nli.epochs, max_rows=None)
        shared = {"training": recipe.nli.training, "encoder": encoder}
        for label in recipe.nli_models:
            starts[with_nli(label)] = add(
                f"nli-{slug(label)}", "sentence_tune", config, shared, table=pairs, start=starts[label]
            )

    trainings: list[Training] = []
    tuned: dict[str, Node] = {}
    for label in recipe.rows:
        for size, candidates in recipe.sizes.items():
            rows = None if size == ALL else int(size)
            for epochs in candidates:
                for repeat in range(1, (recipe.repeats if epochs else 1) + 1):
                    name = f"{slug(label)}-{size}" + (f"-{epochs}x" if epochs else "")
                    name += f"-{repeat}" if recipe.repeats > 1 and epochs else ""
                    shared = {"training": repeated(recipe.training, repeat), "encoder": encoder}
                    config = TuneConfig(epochs=epochs, max_rows=rows if epochs else None)
                    tuned[name] = add(name, "sentence_tune", config, shared, table=table, start=starts[label])
                    trainings.append(Training(run=name, model=label, size=rows, epochs=epochs, repeat=repeat))
    summary = SummaryConfig(trainings=trainings, bootstrap_samples=recipe.bootstrap_samples, seed=recipe.seed)
    add(SUMMARY, "sentence_summary", summary, {}, **tuned)
    return nodes


def repeated(training: TuneTraining, repeat: int) -> TuneTraining:
    """The `repeat`-th training, from 1. The trainings differ in their seeds."""
    return training.model_copy(update={"seed": training.seed + repeat - 1})


def _check_tokenizer(tokenizer: Path) -> Path:
    if not tokenizer.exists():
        raise InputError(f"tokenizer: {paths.absolute_path(tokenizer)}: no such file or folder")
    return tokenizer.absolute()


def model_config(label: str, source: str, tokenizer: Path | None, store: Store) -> SentenceModelConfig:
    """The configuration of a recipe's model. Raises InputError, with the label, if the model does not exist."""
    if source.startswith(HUB):
        name, _, revision = source.removeprefix(HUB).partition("@")
        if not re.match(hub.HUB_NAME, name):
            raise InputError(f"models.{label}: {source}: not a name of a Hugging Face model")
        return SentenceModelConfig(checkpoint=None, pretrained=name, revision=revision or "main", tokenizer=tokenizer)
    path = folder_of(source)
    if path is None:
        recipe, _, rest = source.partition(":")
        path = _of_store(label, recipe, rest, store)
    if not path.is_dir():
        raise InputError(
            f"models.{label}: {paths.absolute_path(path)}: no such folder (nor RECIPE:NODE of the store, nor hub:NAME)"
        )
    return SentenceModelConfig(checkpoint=path.absolute(), pretrained=None, revision="main", tokenizer=tokenizer)


def _of_store(label: str, recipe: str, rest: str, store: Store) -> Path:
    """The folder of `NODE` (or `NODE/query`) in the recipe's newest run that has it."""
    name, _, side = rest.partition("/")
    matches = [run for run in runs(store, recipe) if name in run.nodes and run.nodes[name].path.is_dir()]
    if not matches:
        raise InputError(
            f"models.{label}: {store.root}: no run of {recipe} with {name}; `cocondenser run {recipe} --until {name}`"
        )
    folder = matches[0].nodes[name].path / side
    if not (folder / "config.json").is_file() and not (folder / "query").is_dir():
        raise InputError(f"models.{label}: {name} of {recipe} is not a model")
    return folder
