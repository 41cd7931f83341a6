"""prefect.yaml, made from recipes and ablations: a deployment each, complete in its parameter."""

from pathlib import Path

import yaml

from flows import ablation_file
from flows.ablation import Ablation
from flows.ablation_file import load
from flows.layers import named
from flows.recipe import Recipe, resolve

PREFECT_YAML = Path(__file__).resolve().parents[1] / "prefect.yaml"
POOL = "cocondenser"
HEAD = """\
# Made from flows/recipes and flows/ablations by `cocondenser deployments --write`; edit those, not this.
# `make up` deploys it; `prefect deployment run cocondenser/pydocs-small` then starts a run, `prefect deployment run
# ablation/pydocs-small` an ablation. Parts of a recipe are changed by the parameter `set`:
# --param 'set=["cocondenser.tokens=1000000"]'.
"""


def deployed() -> list[Recipe]:
    return [recipe for recipe in map(resolve, named()) if not recipe.hidden]


def deployed_ablations() -> list[Ablation]:
    return [load(name) for name in ablation_file.named()]


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
    deployments += [
        {
            "name": ablation.name,
            "description": f"{ablation.title}. {ablation.description}",
            "entrypoint": "flows/ablation_flow.py:ablation",
            "parameters": {"ablation": ablation.model_dump(mode="json")},
            "work_pool": {"name": POOL},
        }
        for ablation in deployed_ablations()
    ]
    text = yaml.safe_dump(
        {"name": "cocondenser", "deployments": deployments}, sort_keys=False, width=120, allow_unicode=True
    )
    return HEAD + text
