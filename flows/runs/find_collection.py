"""The collection of `evaluate-model` and `--collection`: a BEIR folder, a recipe or an id of ir_datasets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.builder import JUDGED
from flows.recipes import yaml_layers
from pipeline import paths
from pipeline.data.readers import beir
from pipeline.data.readers.several import SeveralConfig
from pipeline.data.text import text_files
from pipeline.errors import InputError

DEV = ("dev", "validation", "valid", "val", "dev/small")
"""Names of ir_datasets for dev questions, after a collection's id."""
NO_TRAINING = "no training questions (`cocondenser evaluate-model` measures a model without them)"


TRAINING_FIELDS = ("train", "train_qrels", "questions")
"""Fields of readers that name training questions, or texts that become questions."""


@dataclass(frozen=True)
class Collection:
    """A collection, with judged questions or without."""

    name: str
    ingest: dict[str, Any]
    """The recipe's section."""
    more: dict[str, Any] = field(default_factory=dict)
    """Other sections of the recipe, such as its first stage, whose artifact is then shared."""


def find_collection(source: str, trains: bool = False) -> Collection:
    """The collection of a folder, a recipe (name or file) or an id of ir_datasets. Raises InputError if it is none.

    `trains`: it must have training questions. Of a recipe's collection that is not on this machine, only the recipe's
    fields are checked.
    """
    path = paths.expand_home(source, "collection").absolute()
    if path.is_dir():
        return _of_folder(path, trains)
    if source in yaml_layers.named() or source.endswith((".yaml", ".yml")):
        return _of_recipe(source, trains)
    if path.exists():
        raise InputError(f"collection {path}: is a file, not a folder in BEIR's layout or an id of ir_datasets")
    broken = paths.broken_link(path)
    if broken:
        raise InputError(f"collection {path}: {broken}")
    if source.startswith((".", "~")) or Path(source).is_absolute():
        raise InputError(f"collection {path}: no such folder")
    return _of_catalogue(source, trains)


def _of_folder(folder: Path, trains: bool) -> Collection:
    """A folder in BEIR's layout. Only a training needs judgements: an existing model is searched without them."""
    try:
        judged = beir.qrels_files(folder)
    except InputError as error:
        raise InputError(f"collection {folder}: {error}") from None
    for name in ("corpus.jsonl", *(["queries.jsonl"] if trains or judged else [])):
        if text_files.find(folder, name) is None:
            model = "" if trains else " --model MODEL --adapt"
            other = f"for a folder of texts: `cocondenser run text{model} --set ingest.path={folder}`"
            raise InputError(f"collection {folder}: {name} does not exist, plain or compressed; {other}")
    if trains and not any(split in judged for split in JUDGED):
        raise InputError(f"collection {folder}: no judgements: neither qrels/dev.tsv nor qrels/test.tsv exists")
    if trains:
        _check_judged_training(str(folder), judged)
    return Collection(folder.name, {"reader": "beir", "folder": str(folder), "document_key": "", "metadata": []})


def _of_recipe(source: str, trains: bool) -> Collection:
    """With its first stage and its lowest relevant grade: BM25 then has the figures of the recipe's own runs."""
    from flows.recipes.recipe import resolve

    resolved = resolve(source)
    if trains:
        _check_training_fields(source, resolved.ingest)
    recipe = resolved.model_dump(mode="json")
    more = {name: recipe[name] for name in ("bm25", "example_question")}
    return Collection(
        recipe["name"], recipe["ingest"], {**more, "evaluate": {"relevance": recipe["evaluate"]["relevance"]}}
    )


def _check_training_fields(source: str, ingest: Any) -> None:
    """Raises InputError if a reader's configuration names no training questions. `pydocs` always makes some."""
    if isinstance(ingest, SeveralConfig):
        raise InputError(f"collection {source}: {NO_TRAINING}: the reader {ingest.reader} leaves questions out")
    for name in TRAINING_FIELDS:
        if not getattr(ingest, name, True):
            raise InputError(f"collection {source}: {NO_TRAINING}: ingest.{name} is empty")
    if isinstance(ingest, beir.BeirConfig) and ingest.folder.is_dir():
        _check_judged_training(source, beir.qrels_files(ingest.folder))


def _check_judged_training(source: str, judged: Mapping[str, Path]) -> None:
    """`judged`: files of judgements by split."""
    if "train" not in judged:
        raise InputError(f"collection {source}: {NO_TRAINING}: qrels/train.tsv does not exist")


def _of_catalogue(source: str, trains: bool) -> Collection:
    """An id with judgements is one split. For another id, the ids of its test and dev splits are used.

    `trains`: with the training questions of `source/train`.
    """
    import ir_datasets

    splits = {split: name for split, names in _candidates(source).items() if (name := _first_judged(names))}
    if not splits:
        try:
            ir_datasets.load(source)
        except KeyError:
            known = sorted(ir_datasets.registry)
            what = f"no such folder, no recipe, and no dataset of ir_datasets{yaml_layers.hint(source, known)}"
            raise InputError(f"collection {source}: {what}") from None
        below = [name for name in sorted(ir_datasets.registry) if name.startswith(f"{source}/") and _is_judged(name)]
        other = f"; use one of {', '.join(below[:6])}" if below else ""
        raise InputError(f"collection {source}: ir_datasets has no judgements for its questions{other}")
    train = f"{source}/train" if trains else None
    if train is not None and not _is_judged(train):
        raise InputError(f"collection {source}: {NO_TRAINING}: ir_datasets has no {train}")
    by_split = {"train": train, "dev": splits.get("dev"), "test": splits.get("test")}
    rest: dict[str, Any] = {"metadata": [], "negatives": None, "negatives_per_query": 1}
    return Collection(source, {"reader": "ir_datasets", "collection": source, **by_split, **rest})


def _candidates(source: str) -> dict[str, list[str]]:
    """{split: ids that may have it, the best one first}."""
    if _is_judged(source):
        return {"dev" if source.rpartition("/")[2] in DEV or "/dev/" in source else "test": [source]}
    return {"test": [f"{source}/test"], "dev": [f"{source}/{name}" for name in DEV]}


def _first_judged(names: list[str]) -> str | None:
    return next((name for name in names if _is_judged(name)), None)


def _is_judged(name: str) -> bool:
    """Whether ir_datasets has this id with questions and judgements. Nothing is downloaded."""
    import ir_datasets

    try:
        dataset = ir_datasets.load(name)
    except KeyError:
        return False
    return bool(dataset.has_docs() and dataset.has_queries() and dataset.has_qrels())
