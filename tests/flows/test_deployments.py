"""prefect.yaml is what the recipes make it."""

from collections.abc import Callable

import pytest
import yaml

from flows.ablations import file
from flows.ablations.ablation import Ablation
from flows.deploy.deployments import PREFECT_YAML, render
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from flows.sentences import recipe as of_sentences


def test_prefect_yaml_is_up_to_date() -> None:
    assert PREFECT_YAML.read_text(encoding="utf-8") == render(), "run `cocondenser deployments --write`"


@pytest.fixture(scope="module")
def of_flow() -> Callable[[str], dict[str, dict]]:
    """{name: deployment} of a flow, by its entry point."""
    found = yaml.load(PREFECT_YAML.read_text(encoding="utf-8"), yaml.CSafeLoader)["deployments"]
    return lambda entrypoint: {item["name"]: item for item in found if item["entrypoint"] == entrypoint}


def test_each_deployment_holds_its_complete_recipe(of_flow) -> None:
    found = of_flow("flows/flow.py:cocondenser")
    assert set(found) == {name for name in yaml_layers.named() if not resolve(name).hidden}
    for name, item in found.items():
        assert Recipe.model_validate(item["parameters"]["recipe"]) == resolve(name)


def test_so_has_each_of_sentences(of_flow) -> None:
    found = of_flow("flows/sentences/flow.py:sentences")
    assert [*found] == yaml_layers.named(of_sentences.SENTENCES)
    for name, item in found.items():
        recipe = of_sentences.SentenceRecipe.model_validate(item["parameters"]["recipe"])
        assert recipe == of_sentences.resolve(name)


def test_each_ablation_is_deployed_with_its_complete_recipe(of_flow) -> None:
    found = of_flow("flows/ablations/flow.py:ablation")
    assert set(found) == {*file.named()} >= {"marco", "low-data", "batches", "pydocs-small"}
    for name, item in found.items():
        assert Ablation.model_validate(item["parameters"]["ablation"]) == file.load(name)


def test_prefect_takes_an_ablation_whole_alone(of_flow) -> None:
    from prefect.exceptions import ParameterTypeError

    from flows.ablations.flow import ablation

    given = of_flow("flows/ablations/flow.py:ablation")["low-data"]["parameters"]
    taken = ablation.validate_parameters({**given, "rows": ["BERT"], "sizes": [1000, None]})
    assert taken["ablation"] == file.load("low-data")
    assert (taken["rows"], taken["sizes"]) == (["BERT"], [1000, None])
    with pytest.raises(ParameterTypeError, match="reference"):
        ablation.validate_parameters({"ablation": {**given["ablation"], "reference": "nobody"}})
    with pytest.raises(ParameterTypeError, match="Field required"):
        ablation.validate_parameters({"ablation": {"seeds": [1]}})
