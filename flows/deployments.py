"""prefect.yaml, made from the recipes: a deployment each, with the complete recipe as its parameter."""

from pathlib import Path

import yaml

from flows.layers import named
from flows.recipe import Recipe, resolve

PREFECT_YAML = Path(__file__).resolve().parents[1] / "prefect.yaml"
POOL = "cocondenser"
HEAD = """\
# Made from flows/recipes by `cocondenser deployments --write`; edit those, not this.
# `make up` deploys it; `prefect deployment run cocondenser/pydocs-small` then starts a run. Parts of a recipe are
# changed by the parameter `set`: --param 'set=["cocondenser.tokens=1000000"]'.
"""


def deployed() -> list[Recipe]:
    return [recipe for recipe in map(resolve, named()) if not recipe.hidden]


def render() -> str:
    """The text of prefect.yaml."""
    deployments = [
        {
            "name": recipe.name,
            "description": f"{recipe.title}. {recipe.description}",
            "entrypoint": "flows/flow.py:cocondenser",
            "parameters": {"recipe": recipe.model_dump(mode="json")},
            "work_pool": {"name": POOL},
        }
        for recipe in deployed()
    ]
    text = yaml.safe_dump(
        {"name": "cocondenser", "deployments": deployments}, sort_keys=False, width=120, allow_unicode=True
    )
    return HEAD + text
