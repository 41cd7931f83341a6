"""The text that the benchmarks read: the demo's, tokenised once into .benchmarks/ (two minutes)."""

from pathlib import Path

from flows.recipes.recipe import resolve
from pipeline.data.ingest import ingest
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.token_files import Tokens
from pipeline.tokenization.tokenizer import tokenizer
from pipeline.tokenization.tokens import tokens

FOLDER = Path(".benchmarks")


def pydocs() -> Tokens:
    """Tokens of pydocs-small: docstrings of this environment, with their real lengths."""
    recipe = resolve("pydocs-small")
    stages = {
        "collection": lambda work: ingest(recipe.ingest, work),
        "tokenizer": lambda work: tokenizer(recipe.tokenizer, FOLDER / "collection", work),
        "tokens": lambda work: tokens(recipe.tokens, FOLDER / "collection", FOLDER / "tokenizer", work),
    }
    for name, build in stages.items():
        if not (FOLDER / name).exists():
            unfinished = FOLDER / f"{name}.part"
            unfinished.mkdir(parents=True, exist_ok=True)
            build(Work(unfinished, unfinished, recipe.machine, silent))
            unfinished.rename(FOLDER / name)
    return Tokens.open(FOLDER / "tokens")
