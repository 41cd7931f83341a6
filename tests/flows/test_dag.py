"""The shape of the flow, and what a run is asked for."""

import inspect

import pytest

from flows import layers
from flows.dag import Node, nodes
from flows.recipe import resolve
from flows.selection import named, select, up_to
from pipeline.errors import InputError
from tasks.stages import STAGES


def names(dag: list[Node]) -> list[str]:
    return [node.name for node in dag]


def node(name: str, *settings: str, recipe: str = "tiny") -> Node:
    return next(n for n in nodes(resolve(recipe, settings)) if n.name == name)


@pytest.mark.parametrize("recipe", layers.named())
def test_each_node_stands_after_what_it_reads_and_fits_its_function(recipe: str) -> None:
    seen: set[str] = set()
    for n in nodes(resolve(recipe)):
        assert n.name not in seen
        assert {given.name for given in n.inputs.values() if given} <= seen
        seen.add(n.name)
        inspect.signature(STAGES[n.stage].function).bind(n.config, **n.shared, **n.inputs, work=None)
    assert "report" in seen


def test_every_stage_is_used() -> None:
    assert {n.stage for n in nodes(resolve("tiny"))} == set(STAGES)


def test_stage_2_starts_again_from_the_pre_trained_model() -> None:
    stage1, stage2 = node("stage1"), node("stage2")
    assert stage1.inputs["start"].name == stage2.inputs["start"].name == "cocondenser"
    assert stage1.inputs["mined"] is None
    assert stage2.inputs["mined"].name == "mine"
    assert node("mine").inputs["run"].name == "search-stage1"


def test_only_stage_1_searches_the_training_questions() -> None:
    assert node("search-stage1").config.splits == ["train", "dev", "test"]
    assert node("search-stage2").config.splits == node("search-pretrained").config.splits == ["dev", "test"]


def test_condenser_reads_the_general_text_and_cocondenser_the_collection() -> None:
    assert node("condenser", recipe="marco").inputs["tokens"].name == "tokens-pretraining"
    assert node("cocondenser", recipe="marco").inputs["tokens"].name == "tokens"
    assert node("condenser").inputs["tokens"].name == "tokens"


def test_a_finished_condenser_needs_no_general_text(tmp_path) -> None:
    dag = nodes(resolve("marco", [f"condenser.checkpoint={tmp_path}"]))
    assert not [n.name for n in dag if "pretraining" in n.name]


def test_a_finished_cocondenser_needs_no_condenser(tmp_path) -> None:
    dag = nodes(resolve("marco", [f"cocondenser.checkpoint={tmp_path}"]))
    assert "condenser" not in names(dag)
    assert next(n for n in dag if n.name == "cocondenser").inputs["start"].name == "initial"
    assert next(n for n in dag if n.name == "report").inputs["condenser"] is None


def test_until() -> None:
    dag = nodes(resolve("tiny"))
    assert names(up_to(dag, "condenser")) == ["ingest", "tokenizer", "tokens", "initial", "condenser"]
    assert names(up_to(dag, "bm25")) == ["ingest", "bm25"]
    assert names(up_to(dag, "report")) == names(dag)


def test_a_stages_name_means_all_its_nodes() -> None:
    dag = nodes(resolve("tiny"))
    assert names(named(dag, "search")) == ["search-pretrained", "search-stage1", "search-stage2"]
    assert names(named(dag, "finetune")) == ["stage1", "stage2"]
    assert names(named(nodes(resolve("marco")), "pretraining")) == ["ingest-pretraining"]


def test_only() -> None:
    dag = nodes(resolve("tiny"))
    assert names(select(dag, None, "stage1")) == ["stage1"]
    with pytest.raises(InputError, match="exclude each other"):
        select(dag, "stage1", "stage2")


def test_an_unknown_stage() -> None:
    with pytest.raises(InputError, match=r"no stage 'stage3' \(did you mean stage"):
        select(nodes(resolve("tiny")), "stage3", None)
