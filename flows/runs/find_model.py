"""The model that `evaluate-model`, and `run` with `--model`, start from: a folder, a name on the Hugging Face hub, or a
node of a run in the store; and how it reads texts."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.runs import RunRecord, runs
from artifacts.store import Store
from flows.recipes.recipe import Recipe
from flows.recipes.yaml_layers import hint
from flows.runs.evaluated import find_evaluated
from pipeline import paths
from pipeline.errors import InputError
from pipeline.modeling.model_files.existing_model import ExistingModel, folders, read_whole_model
from pipeline.modeling.model_files.model_config import LONGEST
from pipeline.modeling.model_files.sentence_transformers_files import POOLING, read_modules
from pipeline.modeling.model_files.weight_shapes import has_weights
from pipeline.runtime import hub
from pipeline.tokenization.joining import joins_prefix
from pipeline.tokenization.tokenizer import kind, read_tokenizer

DIGEST = re.compile("[0-9a-f]{6,64}")
HUB_MODEL = re.compile(r"[\w.-]+/[\w.-]+")
"""A name on the hub with its owner."""
HUB_FILES = ("*.json", "*.safetensors", "*.txt")
"""Files of a model on the hub, in its folders too: weights, tokenizer, and sentence-transformers' modules."""
HUB_SNAPSHOT = re.compile("models--(?:.*--)?(?P<name>.+)")
GENERIC_NAME = re.compile("model|[0-9a-f]{12,64}")
"""Names of folders that do not identify a model: `model` of an export, a digest."""
QUESTION_TOKENS, PASSAGE_TOKENS = 32, 128
"""Lengths of the base recipe, for a folder of transformers, which names none."""
TITLE_TOKENS = 512
"""Least limit of a title, also for models of fewer positions: another number would encode again what is stored."""


@dataclass(frozen=True)
class Model:
    """An existing bi-encoder."""

    folder: Path
    name: str
    """The name in tables and runs."""
    question: ExistingModel
    passage: ExistingModel
    """The same as `question` if the encoders are tied."""
    encoder: dict[str, Any]
    """The recipe's section `encoder`."""
    passage_tokens: int


def find_model(store: Store, source: str) -> Model:
    """The model in a folder, of a node (`stage2`, or `RUN:NODE`), with a digest, or of the hub (`OWNER/NAME`).

    A node without a run belongs to the newest run that has it. RUN is a recipe or an id (flows/runs/evaluated.py).
    A model of the hub is downloaded if it is not on this machine. Raises InputError if there is none.
    """
    path = paths.expand_home(source, "model").absolute()
    if path.is_dir():
        built = _by_digest(store, path.name) if path.resolve().parent == store.objects.resolve() else None
        return _of_run(*built) if built else _of_folder(path)
    if path.is_file():
        raise InputError(f"model {path}: is a file, not a folder with a model")
    broken = paths.broken_link(path)
    if broken:
        raise InputError(f"model {path}: {broken}")
    named = _by_node(store, source) or (_by_digest(store, source) if DIGEST.fullmatch(source) else None)
    if named is not None:
        return _of_run(*named)
    if source.startswith((".", "~")) or Path(source).is_absolute():
        raise InputError(f"model {path}: no such folder")
    if HUB_MODEL.fullmatch(source):
        return _of_folder(hub_folder(source, ("config.json", "modules.json"), _is_complete))
    nodes = {node for run in runs(store) for node in run.nodes}
    known = f"{hint(source, sorted(nodes))}; a name on the Hugging Face hub is OWNER/NAME"
    raise InputError(f"model {source}: no such folder, and no node of a run in {store.root}{known}")


def hub_folder(name: str, needed: Sequence[str], is_complete: Callable[[Path], bool]) -> Path:
    """The folder of a model of the hub. Raises InputError if it is not on this machine and cannot be downloaded.

    A copy on this machine has at least one file of `needed`. An incomplete one is only used if the hub does not answer.
    """
    folder = hub.cached(name, "main", needed)
    if folder is not None and is_complete(folder):
        return folder
    if hub.reachable(0.3):
        return hub.download(name, "main", HUB_FILES)
    if folder is None:
        raise InputError(
            f"model {name}: no such folder, and not on this machine: `hf download {name}`, or name a local folder"
        )
    return folder


def _is_complete(folder: Path) -> bool:
    """Whether a copy of a hub's model has modules.json and the weights of its modules.

    `initial.pretrained` downloads no modules.json, and an interrupted download has it before the weights.
    """
    try:
        modules = read_modules(folder)
    except InputError:  # of a complete download, it is reported where the model is read
        return False
    return bool(modules) and all(has_weights(path) for kind, path in modules if kind in ("Transformer", "Dense"))


def _by_node(store: Store, source: str) -> tuple[RunRecord, str] | None:
    """The run and its node of `NODE` or `RUN:NODE`."""
    run_name, colon, node = source.rpartition(":")
    if not colon:
        return next(((run, node) for run in runs(store) if node in run.nodes and run.nodes[node].path.exists()), None)
    named = runs(store, run_name) or [find_evaluated(store, run_name).run]
    with_node = [run for run in named if node in run.nodes]
    if not with_node:
        raise InputError(f"model {source}: no node {node!r} in the run of {named[0].name}{hint(node, named[0].nodes)}")
    run = next((run for run in with_node if run.nodes[node].path.exists()), None)
    if run is None:
        again = f"`cocondenser run {named[0].name}` builds it again"
        raise InputError(f"model {source}: the run of {named[0].name} has lost {node}; {again}")
    return run, node


def _by_digest(store: Store, source: str) -> tuple[RunRecord, str] | None:
    """The newest run with an artifact whose digest starts like this, and the node."""
    matches = [
        (run, node, ref) for run in runs(store) for node, ref in run.nodes.items() if ref.digest.startswith(source)
    ]
    if len({ref.digest for _, _, ref in matches}) > 1:
        raise InputError(f"model {source}: several digests start like this; use more characters")
    return next(((run, node) for run, node, ref in matches if ref.path.exists()), None)


def _of_run(run: RunRecord, node: str) -> Model:
    """A run's model reads texts as the run's recipe says: its folder does not have all of these settings."""
    path = run.nodes[node].path
    what = f"{node} of the run of {run.name}"
    if not any((folder / "config.json").is_file() for folder in folders(path)):
        others = [name for name, ref in run.nodes.items() if is_retriever(ref.path)]
        raise InputError(f"{what} has no model{'; these nodes have one: ' if others else ''}{', '.join(others)}")
    if has_scorer(path):
        raise InputError(f"{what} compares vectors with a learned scorer, not by inner product")
    try:
        recipe: Mapping[str, Any] = run.details["recipe"]
        encoder, passage_tokens = dict(recipe["encoder"]), int(recipe["encode"]["passage_tokens"])
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"the record of the run of {run.name} does not say how {node} reads texts") from error
    try:
        question, passage = _sides(path)
    except InputError:
        Store.of(run.nodes[node]).source_digests({"checkpoint": path})  # a damaged artifact has another remedy
        raise
    encoder |= {**_vector(question), "tied": len(folders(path)) == 1}
    return Model(path, f"{run.name} {node}", question, passage, encoder, passage_tokens)


def has_scorer(path: Path) -> bool:
    """Whether a learned scorer compares the vectors (pipeline/finetune/encoders.py)."""
    return (path / "scorer.safetensors").exists()


def is_retriever(path: Path) -> bool:
    """Whether an artifact has a bi-encoder whose vectors are compared by inner product."""
    return any((folder / POOLING).is_dir() for folder in folders(path)) and not has_scorer(path)


def _of_folder(path: Path) -> Model:
    question, passage = _sides(path)
    section = _section(path, question, passage)
    snapshot = HUB_SNAPSHOT.fullmatch(path.parent.parent.name) if path.parent.name == "snapshots" else None
    names = (folder.name for folder in (path, *path.parents) if not GENERIC_NAME.fullmatch(folder.name))
    name = snapshot["name"] if snapshot else next(names) or path.name
    longest = passage.passage_tokens or min(PASSAGE_TOKENS, passage.positions)
    return Model(path, name, question, passage, section, longest)


def _sides(path: Path) -> tuple[ExistingModel, ExistingModel]:
    """The encoders of questions and of passages. Raises InputError if they are unusable or do not fit together."""
    encoders = [read_whole_model(folder) for folder in folders(path)]
    question, passage = encoders[0], encoders[-1]
    if (question.pooling, question.normalise) != (passage.pooling, passage.normalise):
        raise InputError(f"{path}: `query` and `passage` differ in pooling or normalisation")
    return question, passage


def _section(path: Path, question: ExistingModel, passage: ExistingModel) -> dict[str, Any]:
    """The recipe's section `encoder` for a folder. Title and text are one string, as in BEIR's own evaluation.

    Raises InputError for a prompt without a space at its end that changes the tokens of the text after it:
    sentence-transformers joins the two, but here a prefix is tokenized alone.
    """
    for side, prefix in ((question, question.question_prefix), (passage, passage.passage_prefix)):
        tokenizer = read_tokenizer(side.folder)
        if prefix and not joins_prefix(tokenizer, prefix):
            raise InputError(
                f"{path}: the prompt {prefix!r} ends without a space and changes the first token of a text with this "
                f"{kind(tokenizer)}, which is not supported"
            )
    return {
        **_vector(question),
        "tied": len(folders(path)) == 1,
        "question_tokens": question.question_tokens or min(QUESTION_TOKENS, question.positions),
        "title_tokens": min(max(TITLE_TOKENS, passage.positions), LONGEST),
        "title_separator": "space",
        "question_prefix": question.question_prefix,
        "passage_prefix": passage.passage_prefix,
    }


def _vector(model: ExistingModel) -> dict[str, Any]:
    """The vector settings of a model's folder. If it has none: CLS without normalisation."""
    return {"pooling": model.pooling or "cls", "normalise": bool(model.normalise), "projection": model.projection}


def check_agreement(recipe: Recipe, model: Model) -> None:
    """Raises InputError if the recipe contradicts the vector settings or the lengths of the model's folder.

    Another prefix is no contradiction: a user may know a better one. The stage that reads the model reports it.
    """
    question = model.question
    vector = {"pooling": question.pooling, "normalise": question.normalise}  # None: the folder does not say it
    fields: dict[str, object] = {name: value for name, value in vector.items() if value is not None}
    fields |= {"projection": question.projection, "tied": model.encoder["tied"]}
    for field, expected in fields.items():
        value = getattr(recipe.encoder, field)
        if value != expected:
            text = f"{_yaml_text(value)}, but the model in {model.folder} has {_yaml_text(expected)}"
            raise InputError(f"encoder.{field}: {text}")
    lengths = {
        "encoder.question_tokens": (recipe.encoder.question_tokens, model.question),
        "encode.passage_tokens": (recipe.encode.passage_tokens, model.passage),
    }
    for field, (tokens, side) in lengths.items():
        if tokens > side.positions:
            raise InputError(f"{field}: {tokens}, but the model in {side.folder} has {side.positions} positions")


def _yaml_text(value: object) -> str:
    """The value as a recipe has it."""
    return value if isinstance(value, str) else json.dumps(value)
