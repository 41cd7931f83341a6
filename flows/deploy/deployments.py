"""Renders prefect.yaml: one deployment per recipe of all flows, with the recipe's name as its parameter."""

from pathlib import Path
from typing import Any

import yaml

from flows.ablations import file
from flows.ablations.ablation import Ablation
from flows.recipes.recipe import Recipe, resolve
from flows.recipes.yaml_layers import SENTENCES, listed
from flows.sentences.recipe import SentenceRecipe, resolve_sentences

PREFECT_YAML = Path(__file__).resolve().parents[2] / "prefect.yaml"
POOL = "cocondenser"
UPDATED = ("adapt", "generated", "text")
"""Recipes of a user's own collection, which grows. `update` takes any other recipe as a parameter."""
HEAD = """\
# Rendered by `cocondenser deployments --write` from flows/recipes, flows/ablations and flows/sentences: edit those.
# `make up` deploys it. `prefect deployment run cocondenser/pydocs-small` then starts a run, and `prefect deployment run
# ablation/pydocs-small` an ablation. `prefect deployment schedule create update/text --cron "0 3 * * *"` takes in new
# files every night. The parameter `set` changes fields of the recipe:
# --param 'set=["cocondenser.budget=1000000 tokens"]'.
"""


def deployed_recipes() -> list[Recipe]:
    return [resolve(name) for name in listed()]


def deployed_sentences() -> list[SentenceRecipe]:
    return [resolve_sentences(name) for name in listed(SENTENCES)]


def deployed_ablations() -> list[Ablation]:
    return [file.load(name) for name in file.listed()]


def render() -> str:
    """The text of prefect.yaml."""
    deployments = [deployment(recipe, "flows/flow.py:cocondenser") for recipe in deployed_recipes()]
    deployments += [update_deployment(recipe) for recipe in deployed_recipes() if recipe.name in UPDATED]
    deployments += [deployment(recipe, "flows/sentences/flow.py:sentences") for recipe in deployed_sentences()]
    deployments += [deployment(one, "flows/ablations/flow.py:ablation", "ablation") for one in deployed_ablations()]
    whole = {"name": "cocondenser", "deployments": deployments}
    # A mapping or list without nested ones is on one line; so is a description.
    return HEAD + yaml.safe_dump(whole, sort_keys=False, width=10_000, allow_unicode=True, default_flow_style=None)


def update_deployment(recipe: Recipe) -> dict[str, Any]:
    """An update of a recipe's newest run."""
    updated = deployment(recipe, "flows/updates/flow.py:update")
    return {**updated, "description": f"{recipe.title}: new, changed and deleted files, without training."}


def deployment(
    recipe: Recipe | SentenceRecipe | Ablation, entrypoint: str, parameter: str = "recipe"
) -> dict[str, Any]:
    """A deployment of a flow; `parameter` of the flow is the recipe's name."""
    return {
        "name": recipe.name,
        "description": f"{recipe.title}. {recipe.description}",
        "entrypoint": entrypoint,
        "parameters": {parameter: recipe.name},
        "work_pool": {"name": POOL},
    }
