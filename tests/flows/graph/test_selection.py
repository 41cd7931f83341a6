"""The choice of nodes of a run."""

import pytest

from flows.dag import nodes
from flows.graph.selection import named, select, up_to
from flows.recipes.recipe import resolve
from pipeline.errors import InputError
from tasks.node import Node


def names(dag: list[Node]) -> list[str]:
    return [node.name for node in dag]


def test_until_keeps_the_nodes_that_a_stage_needs() -> None:
    dag = nodes(resolve("tiny"))
    assert names(up_to(dag, "condenser")) == ["ingest", "tokenizer", "tokens", "initial", "condenser"]
    assert names(up_to(dag, "bm25")) == ["ingest", "bm25"]
    assert names(up_to(dag, "report")) == names(dag)


def test_a_stages_name_means_all_its_nodes() -> None:
    dag = nodes(resolve("tiny"))
    assert names(named(dag, "search")) == ["search-pretrained", "search-stage1", "search-stage2"]
    assert names(named(dag, "finetune")) == ["stage1", "stage2"]
    assert names(named(nodes(resolve("marco")), "pretraining")) == ["ingest-pretraining"]


def test_only_selects_one_stage() -> None:
    dag = nodes(resolve("tiny"))
    assert names(select(dag, None, "stage1")) == ["stage1"]
    with pytest.raises(InputError, match="exclude each other"):
        select(dag, "stage1", "stage2")


def test_an_unknown_stage_is_reported() -> None:
    with pytest.raises(InputError, match=r"no stage 'stage3' \(did you mean stage"):
        select(nodes(resolve("tiny")), "stage3", None)
