"""prefect.yaml is what the recipes make it."""

import yaml

from flows import layers
from flows.deployments import PREFECT_YAML, render
from flows.recipe import Recipe, resolve
from flows.sentences import recipe as of_sentences


def test_prefect_yaml_is_up_to_date() -> None:
    assert PREFECT_YAML.read_text(encoding="utf-8") == render(), "run `cocondenser deployments --write`"


def test_each_deployment_holds_its_complete_recipe() -> None:
    found = {item["name"]: item for item in deployments("flows/flow.py:cocondenser")}
    assert set(found) == {name for name in layers.named() if not resolve(name).hidden}
    for name, item in found.items():
        assert Recipe.model_validate(item["parameters"]["recipe"]) == resolve(name)


def test_so_has_each_of_sentences() -> None:
    found = {item["name"]: item for item in deployments("flows/sentences/flow.py:sentences")}
    assert [*found] == of_sentences.named()
    for name, item in found.items():
        recipe = of_sentences.SentenceRecipe.model_validate(item["parameters"]["recipe"])
        assert recipe == of_sentences.resolve(name)


def deployments(entrypoint: str) -> list[dict]:
    return [item for item in yaml.safe_load(render())["deployments"] if item["entrypoint"] == entrypoint]
