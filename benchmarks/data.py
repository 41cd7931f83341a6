"""The text that the benchmarks read: the demo's, tokenised once into .benchmarks/ (two minutes), and BEIR folders."""

import shutil
from collections.abc import Callable
from pathlib import Path

from artifacts.locks import hold
from flows.recipes.recipe import resolve
from pipeline.data.collection import Source
from pipeline.data.ingest import ingest
from pipeline.data.readers import beir
from pipeline.runtime.work import Machine, Work, silent
from pipeline.tokenization.token_files import Tokens
from pipeline.tokenization.tokenizer import tokenizer
from pipeline.tokenization.tokens import tokens

FOLDER = Path(".benchmarks")


def pydocs() -> Tokens:
    """Tokens of pydocs-small: docstrings of this environment, with their real lengths."""
    recipe = resolve("pydocs-small")
    stages: dict[str, Callable[[Work], object]] = {
        "collection": lambda work: ingest(recipe.ingest, work),
        "tokenizer": lambda work: tokenizer(recipe.tokenizer, FOLDER / "collection", work),
        "tokens": lambda work: tokens(recipe.tokens, FOLDER / "collection", FOLDER / "tokenizer", work),
    }
    for name, build in stages.items():
        _build_once(FOLDER / name, build, recipe.machine)
    return Tokens.open(FOLDER / "tokens")


def beir_source(folder: Path) -> Source:
    """Opens a BEIR folder."""
    return beir.read(beir.BeirConfig(reader="beir", folder=folder, document_key="", metadata=()), silent)


def passage_texts(source: Source) -> dict[str, str]:
    """Returns the passages by their ids, each after its title."""
    return {x.passage_id: f"{x.title} {x.text}".strip() for _, x in source.passages()}


def _build_once(folder: Path, build: Callable[[Work], object], machine: Machine) -> None:
    """Builds the folder unless it exists. Of several processes one builds, the others wait for it."""
    if folder.exists():
        return
    with hold(folder.with_suffix(".lock")):
        if folder.exists():
            return
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        unfinished.mkdir()
        build(Work(unfinished, unfinished, machine, silent))
        unfinished.rename(folder)
