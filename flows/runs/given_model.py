"""What `--model` names: a folder, or a model that a run in the store has made, and what is known of how it reads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.runs import Run, runs
from artifacts.store import Store
from flows.recipes.yaml_layers import hint
from flows.runs.evaluated import found as measured_run
from pipeline import paths
from pipeline.errors import InputError
from pipeline.modeling.existing_model import Ready, folders, read_whole
from pipeline.tokenization.tokenizer import kind, read_tokenizer

DIGEST = re.compile("[0-9a-f]{6,64}")
HUB_SNAPSHOT = re.compile("models--(?:.*--)?(?P<name>.+)")
UNTELLING = re.compile("model|[0-9a-f]{12,64}")
"""Names of folders that tell nothing of the model: an export's own, a digest."""
QUESTION_TOKENS, PASSAGE_TOKENS = 32, 128
"""Of a folder of transformers alone, which does not say: those of the base recipe."""


@dataclass(frozen=True)
class Model:
    """A ready bi-encoder."""

    folder: Path
    name: str
    """What tables and runs call it."""
    question: Ready
    passage: Ready
    """The same where tied."""
    encoder: dict[str, Any]
    """The recipe's section."""
    passage_tokens: int


def find(store: Store, given: str) -> Model:
    """The model in a folder, of a node (`stage2`, or `RUN:NODE`) or with a digest. InputError where there is none.

    A node without a run is of the newest run that has it. A run goes by its recipe or its id (flows/runs/evaluated.py).
    """
    path = paths.given(given, "--model").absolute()
    if path.is_dir():
        made = _by_digest(store, path.name) if path.resolve().parent == store.objects.resolve() else None
        return _of_run(*made) if made else _of_folder(path)
    if path.is_file():
        raise InputError(f"--model {path}: a file; a model is a folder")
    named = _by_node(store, given) or (_by_digest(store, given) if DIGEST.fullmatch(given) else None)
    if named is None and (given.startswith((".", "~")) or Path(given).is_absolute()):
        raise InputError(f"--model {path}: no such folder")
    if named is None:
        raise InputError(f"--model {given}: {_nowhere(store, given)}")
    return _of_run(*named)


def _nowhere(store: Store, given: str) -> str:
    nodes = {node for run in runs(store) for node in run.nodes}
    hub = f"; `hf download {given} --local-dir DIR` brings a model of the Hugging Face hub" if "/" in given else ""
    return f"no such folder, and no node of a run in {store.root}{hint(given, sorted(nodes))}{hub}"


def _by_node(store: Store, given: str) -> tuple[Run, str] | None:
    """The run and its node that `NODE` or `RUN:NODE` names."""
    of, colon, node = given.rpartition(":")
    if not colon:
        return next(((run, node) for run in runs(store) if node in run.nodes and run.nodes[node].path.exists()), None)
    named = runs(store, of) or [measured_run(store, of).run]
    having = [run for run in named if node in run.nodes]
    if not having:
        raise InputError(f"--model {given}: no node {node!r} in the run of {named[0].name}{hint(node, named[0].nodes)}")
    run = next((run for run in having if run.nodes[node].path.exists()), None)
    if run is None:
        again = f"`cocondenser run {named[0].name}` builds it again"
        raise InputError(f"--model {given}: the run of {named[0].name} has lost {node}; {again}")
    return run, node


def _by_digest(store: Store, given: str) -> tuple[Run, str] | None:
    """The newest run that has an artifact whose digest begins so, and the node."""
    found = [(run, node, ref) for run in runs(store) for node, ref in run.nodes.items() if ref.digest.startswith(given)]
    if len({ref.digest for _, _, ref in found}) > 1:
        raise InputError(f"--model {given}: several artifacts begin so; give more of the digest")
    return next(((run, node) for run, node, ref in found if ref.path.exists()), None)


def _of_run(run: Run, node: str) -> Model:
    """A run's model reads texts as its recipe says: its folder does not hold all of that."""
    path = run.nodes[node].path
    what = f"{node} of the run of {run.name}"
    if not any((folder / "config.json").is_file() for folder in folders(path)):
        held = [name for name, ref in run.nodes.items() if _is_retriever(ref.path)]
        raise InputError(f"{what} holds no model{'; these do: ' if held else ''}{', '.join(held)}")
    if (path / "scorer.safetensors").exists():
        raise InputError(f"{what} compares its vectors by a learnt scorer, not by their inner product")
    try:
        said: Mapping[str, Any] = run.details["recipe"]
        form, passage_tokens = dict(said["encoder"]), int(said["encode"]["passage_tokens"])
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"the record of the run of {run.name} does not say how {node} reads texts") from error
    question, passage = _sides(path)
    form |= {**_vector(question), "tied": len(folders(path)) == 1}
    return Model(path, f"{run.name} {node}", question, passage, form, passage_tokens)


def _is_retriever(path: Path) -> bool:
    return any((folder / "1_Pooling").is_dir() for folder in folders(path))


def _of_folder(path: Path) -> Model:
    question, passage = _sides(path)
    section = _section(path, question, passage)
    snapshot = HUB_SNAPSHOT.fullmatch(path.parent.parent.name) if path.parent.name == "snapshots" else None
    telling = (folder.name for folder in (path, *path.parents) if not UNTELLING.fullmatch(folder.name))
    name = snapshot["name"] if snapshot else next(telling) or path.name
    longest = passage.passage_tokens or min(PASSAGE_TOKENS, passage.positions)
    return Model(path, name, question, passage, section, longest)


def _sides(path: Path) -> tuple[Ready, Ready]:
    """Of questions and passages. Raises InputError where either cannot be used, or the two do not fit together."""
    ready = [read_whole(folder) for folder in folders(path)]
    question, passage = ready[0], ready[-1]
    if (question.pooling, question.normalise) != (passage.pooling, passage.normalise):
        raise InputError(f"{path}: `query` and `passage` make vectors in two ways")
    return question, passage


def _section(path: Path, question: Ready, passage: Ready) -> dict[str, Any]:
    """The recipe's section `encoder` of a folder. Title and text are one string, as in BEIR's own evaluation.

    In byte-level BPE a text's first word is another token behind a title than alone: a separator stands between them.
    """
    return {
        **_vector(question),
        "tied": len(folders(path)) == 1,
        "question_tokens": question.question_tokens or min(QUESTION_TOKENS, question.positions),
        "title_tokens": 512,
        "title_separator": "space" if kind(read_tokenizer(passage.folder)) == "wordpiece" else "sep",
        "question_prefix": question.question_prefix,
        "passage_prefix": passage.passage_prefix,
    }


def _vector(one: Ready) -> dict[str, Any]:
    """What its folder says of its vectors; CLS without a norm where it does not."""
    return {"pooling": one.pooling or "cls", "normalise": bool(one.normalise), "projection": one.projection}
