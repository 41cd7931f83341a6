"""What `--collection` names: a BEIR folder, a recipe or an ir_datasets id, as a recipe's `ingest`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.recipes import yaml_layers
from pipeline import paths
from pipeline.data import text_files
from pipeline.data.readers import beir
from pipeline.errors import InputError

JUDGED = ("dev", "test")
DEV = ("dev", "validation", "valid", "val", "dev/small")
"""What catalogues call the questions that settings are chosen on, below a collection's id."""


@dataclass(frozen=True)
class Collection:
    """A collection with judged questions."""

    name: str
    ingest: dict[str, Any]
    """The recipe's section."""
    more: dict[str, Any] = field(default_factory=dict)
    """Other sections that belong to it: a recipe's first stage, so that it is shared."""


def find(given: str) -> Collection:
    """The collection of a folder, a recipe's name or file, or an ir_datasets id. InputError where it is none."""
    path = paths.given(given, "--collection").absolute()
    if path.is_dir():
        return _of_folder(path)
    if given in yaml_layers.named() or given.endswith((".yaml", ".yml")):
        return _of_recipe(given)
    if path.exists():
        raise InputError(f"--collection {path}: a file; a collection is a folder in BEIR's layout or an ir_datasets id")
    if given.startswith((".", "~")) or Path(given).is_absolute():
        raise InputError(f"--collection {path}: no such folder")
    return _of_catalogue(given)


def _of_folder(folder: Path) -> Collection:
    for name in ("corpus.jsonl", "queries.jsonl"):
        if text_files.find(folder, name) is None:
            raise InputError(f"--collection {folder}: {name} does not exist, plain or compressed")
    try:
        judged = beir.qrels_files(folder)
    except InputError as error:
        raise InputError(f"--collection {folder}: {error}") from None
    if not any(split in judged for split in JUDGED):
        raise InputError(f"--collection {folder}: no judgements: neither qrels/dev.tsv nor qrels/test.tsv exists")
    return Collection(folder.name, {"reader": "beir", "folder": str(folder), "document_key": "", "metadata": []})


def _of_recipe(given: str) -> Collection:
    """With its first stage and its least relevant grade: the row of BM25 is then that of the recipe's own runs."""
    from flows.recipes.recipe import resolve

    recipe = resolve(given).model_dump(mode="json")
    more = {name: recipe[name] for name in ("bm25", "example_question")}
    return Collection(
        recipe["name"], recipe["ingest"], {**more, "evaluate": {"relevance": recipe["evaluate"]["relevance"]}}
    )


def _of_catalogue(given: str) -> Collection:
    """An id with judgements of its own is one split; below one without, test and dev are looked for."""
    import ir_datasets

    splits = {split: name for split, names in _candidates(given).items() if (name := _first_judged(names))}
    if not splits:
        try:
            ir_datasets.load(given)
        except KeyError:
            known = sorted(ir_datasets.registry)
            what = f"no such folder, no recipe, and no dataset of ir_datasets{yaml_layers.hint(given, known)}"
            raise InputError(f"--collection {given}: {what}") from None
        below = [name for name in sorted(ir_datasets.registry) if name.startswith(f"{given}/") and _is_judged(name)]
        other = f"; these have: {', '.join(below[:6])}" if below else ""
        raise InputError(f"--collection {given}: ir_datasets has no judgements of its questions{other}")
    own = {"train": None, "dev": splits.get("dev"), "test": splits.get("test")}
    rest: dict[str, Any] = {"metadata": [], "negatives": None, "negatives_per_query": 1}
    return Collection(given, {"reader": "ir_datasets", "collection": given, **own, **rest})


def _candidates(given: str) -> dict[str, list[str]]:
    """{split: ids that may hold it, the first one first}."""
    if _is_judged(given):
        return {"dev" if given.rpartition("/")[2] in DEV or "/dev/" in given else "test": [given]}
    return {"test": [f"{given}/test"], "dev": [f"{given}/{name}" for name in DEV]}


def _first_judged(names: list[str]) -> str | None:
    return next((name for name in names if _is_judged(name)), None)


def _is_judged(name: str) -> bool:
    """Whether the catalogue has an id with questions and judgements. Nothing is downloaded."""
    import ir_datasets

    try:
        found = ir_datasets.load(name)
    except KeyError:
        return False
    return bool(found.has_docs() and found.has_queries() and found.has_qrels())
