"""prefect.yaml is what the recipes make it."""

import yaml

from flows import layers
from flows.deployments import PREFECT_YAML, render
from flows.recipe import Recipe, resolve


def test_prefect_yaml_is_up_to_date() -> None:
    assert PREFECT_YAML.read_text(encoding="utf-8") == render(), "run `cocondenser deployments --write`"


def test_each_deployment_holds_its_complete_recipe() -> None:
    found = {item["name"]: item for item in yaml.safe_load(render())["deployments"]}
    assert set(found) == {name for name in layers.named() if not resolve(name).hidden}
    for name, item in found.items():
        assert item["entrypoint"] == "flows/flow.py:cocondenser"
        assert Recipe.model_validate(item["parameters"]["recipe"]) == resolve(name)
