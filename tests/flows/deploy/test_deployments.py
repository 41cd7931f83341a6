"""prefect.yaml matches the recipes, and the flow of each deployment accepts a name or a file."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml
from prefect.utilities.callables import parameter_schema

from flows.ablations import file
from flows.ablations.flow import ablation
from flows.deploy.deployments import PREFECT_YAML, render
from flows.flow import cocondenser
from flows.recipes import yaml_layers
from flows.recipes.recipe import resolve
from flows.sentences.flow import sentences

FLOWS = [(cocondenser, "recipe", "marco"), (sentences, "recipe", "stsb"), (ablation, "ablation", "low-data")]


def test_prefect_yaml_is_up_to_date_and_short() -> None:
    text = PREFECT_YAML.read_text(encoding="utf-8")
    assert text == render(), "run `cocondenser deployments --write`"
    assert len(text.splitlines()) < 300


@pytest.fixture(scope="module")
def of_flow() -> Callable[[str], dict[str, dict]]:
    """{name: deployment} of a flow, by its entry point."""
    deployments = yaml.load(PREFECT_YAML.read_text(encoding="utf-8"), yaml.CSafeLoader)["deployments"]
    return lambda entrypoint: {item["name"]: item for item in deployments if item["entrypoint"] == entrypoint}


@pytest.mark.parametrize(
    ("entrypoint", "parameter", "names"),
    [
        ("flows/flow.py:cocondenser", "recipe", [name for name in yaml_layers.named() if not resolve(name).hidden]),
        ("flows/sentences/flow.py:sentences", "recipe", yaml_layers.named(yaml_layers.SENTENCES)),
        ("flows/ablations/flow.py:ablation", "ablation", file.listed()),
    ],
)
def test_each_recipe_is_deployed_by_its_name(of_flow, entrypoint: str, parameter: str, names: list[str]) -> None:
    deployments = of_flow(entrypoint)
    assert {name: item["parameters"] for name, item in deployments.items()} == {
        name: {parameter: name} for name in names
    }


@pytest.mark.parametrize(("flow", "parameter", "name"), FLOWS, ids=["run", "sentences", "ablation"])
def test_the_form_offers_the_names_and_takes_a_file(flow, parameter: str, name: str) -> None:
    schema = parameter_schema(flow).model_dump()
    offered, other = schema["properties"][parameter]["anyOf"]
    assert name in offered["enum"]
    assert "tiny" not in offered["enum"]  # it is hidden
    assert other["type"] == "string"
    for value in (name, "mine/own.yaml", "nobody"):  # the flow itself reports unknown names
        jsonschema.validate({parameter: value}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({parameter: {"condenser": {"steps": 9}}}, schema)
    assert flow.validate_parameters({parameter: name, "set": ["machine.ranks=2"]})["set"] == ["machine.ranks=2"]


@pytest.mark.parametrize(
    ("flow", "parameters", "line"),
    [
        (cocondenser, {"recipe": "marko"}, "no recipe 'marko' (did you mean marco?)"),
        (cocondenser, {"recipe": "tiny", "set": ["condenser.stepz=1"]}, "--set condenser.stepz=1: condenser.stepz: "),
        (cocondenser, {"recipe": "tiny", "only": "nothing"}, "no stage 'nothing'"),
        (sentences, {"recipe": "sstb"}, "no recipe of sentences 'sstb'"),
        (ablation, {"ablation": "low-date"}, "no ablation 'low-date' (did you mean low-data?)"),
        (ablation, {"ablation": "tiny", "rows": ["nobody"]}, "no row 'nobody'"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_run_of_something_unknown_fails_in_one_line(flow, parameters, line: str, tmp_path: Path) -> None:
    state = flow.fn(**parameters, store=str(tmp_path))
    assert state.is_failed()
    assert state.message.startswith(line)
    assert "\n" not in state.message
