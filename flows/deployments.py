"""prefect.yaml, made from the recipes: a deployment each, with the complete recipe as its parameter."""

from pathlib import Path
from typing import Any

import yaml

from flows.layers import named
from flows.recipe import Recipe, resolve
from flows.sentences import recipe as of_sentences
from flows.sentences.recipe import SentenceRecipe

PREFECT_YAML = Path(__file__).resolve().parents[1] / "prefect.yaml"
POOL = "cocondenser"
HEAD = """\
# Made from flows/recipes by `cocondenser deployments --write`; edit those, not this.
# `make up` deploys it; `prefect deployment run cocondenser/pydocs-small` then starts a run. Parts of a recipe are
# changed by the parameter `set`: --param 'set=["cocondenser.tokens=1000000"]'.
"""


def deployed() -> list[Recipe]:
    return [recipe for recipe in map(resolve, named()) if not recipe.hidden]


def deployed_sentences() -> list[SentenceRecipe]:
    return [recipe for recipe in map(of_sentences.resolve, of_sentences.named()) if not recipe.hidden]


def render() -> str:
    """The text of prefect.yaml."""
    deployments = [deployment(recipe, "flows/flow.py:cocondenser") for recipe in deployed()]
    deployments += [deployment(recipe, "flows/sentences/flow.py:sentences") for recipe in deployed_sentences()]
    text = yaml.safe_dump(
        {"name": "cocondenser", "deployments": deployments}, sort_keys=False, width=120, allow_unicode=True
    )
    return HEAD + text


def deployment(recipe: Recipe | SentenceRecipe, entrypoint: str) -> dict[str, Any]:
    return {
        "name": recipe.name,
        "description": f"{recipe.title}. {recipe.description}",
        "entrypoint": entrypoint,
        "parameters": {"recipe": recipe.model_dump(mode="json")},
        "work_pool": {"name": POOL},
    }
