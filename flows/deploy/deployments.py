"""prefect.yaml, made from the recipes of all flows: a deployment each, complete in its parameter."""

from pathlib import Path
from typing import Any

import yaml

from flows.ablations import file
from flows.ablations.ablation import Ablation
from flows.ablations.file import load
from flows.recipes.recipe import Recipe, resolve
from flows.recipes.yaml_layers import named
from flows.sentences import recipe as of_sentences
from flows.sentences.recipe import SENTENCES, SentenceRecipe

PREFECT_YAML = Path(__file__).resolve().parents[2] / "prefect.yaml"
POOL = "cocondenser"
HEAD = """\
# Made from flows/recipes, flows/ablations and flows/sentences by `cocondenser deployments --write`; edit those, not
# this.
# `make up` deploys it; `prefect deployment run cocondenser/pydocs-small` then starts a run, `prefect deployment run
# ablation/pydocs-small` an ablation. Parts of a recipe are changed by the parameter `set`:
# --param 'set=["cocondenser.tokens=1000000"]'.
"""


def deployed() -> list[Recipe]:
    return [recipe for recipe in map(resolve, named()) if not recipe.hidden]


def deployed_sentences() -> list[SentenceRecipe]:
    return [recipe for recipe in map(of_sentences.resolve, named(SENTENCES)) if not recipe.hidden]


def deployed_ablations() -> list[Ablation]:
    return [load(name) for name in file.named()]


def render() -> str:
    """The text of prefect.yaml."""
    deployments = [deployment(recipe, "flows/flow.py:cocondenser") for recipe in deployed()]
    deployments += [deployment(recipe, "flows/sentences/flow.py:sentences") for recipe in deployed_sentences()]
    deployments += [deployment(one, "flows/ablations/flow.py:ablation", "ablation") for one in deployed_ablations()]
    text = yaml.safe_dump(
        {"name": "cocondenser", "deployments": deployments}, sort_keys=False, width=120, allow_unicode=True
    )
    return HEAD + text


def deployment(of: Recipe | SentenceRecipe | Ablation, entrypoint: str, parameter: str = "recipe") -> dict[str, Any]:
    return {
        "name": of.name,
        "description": f"{of.title}. {of.description}",
        "entrypoint": entrypoint,
        "parameters": {parameter: of.model_dump(mode="json")},
        "work_pool": {"name": POOL},
    }
