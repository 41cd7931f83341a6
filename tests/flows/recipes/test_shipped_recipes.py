"""The recipes of the package: complete, listed, and with the papers' numbers."""

import pytest

from flows.dag import nodes
from flows.recipes import yaml_layers
from flows.recipes.recipe import resolve, with_settings

EVERY = yaml_layers.named()


@pytest.mark.parametrize("name", EVERY)
def test_every_recipe_is_complete(name: str) -> None:
    recipe = resolve(name)
    assert recipe.name == name
    assert recipe.title
    assert recipe.description
    assert with_settings(recipe, []) == recipe
    assert type(recipe).model_validate_json(recipe.model_dump_json()) == recipe


def test_the_recipes_of_the_papers_are_listed() -> None:
    papers = {"marco", "marco-doc", "nq", "trivia", "low-data", "continued"}
    compared = {f"marco-{name}" for name in ("abs", "bert", "denoised", "ict", "mlm", "retromae", "soft")}
    others = {
        "adapt",
        "adapt-pydocs",
        "generated",
        "ladder-pydocs",
        "ladder-squad",
        "pydocs",
        "pydocs-small",
        "squad",
        "text",
        "tiny",
    }
    assert papers | compared | others == set(EVERY)
    assert [name for name in EVERY if resolve(name).hidden] == ["tiny"]


def test_the_recipes_to_compare_with_have_their_nodes() -> None:
    nodes_of = {name: {node.name for node in nodes(resolve(name))} for name in EVERY}
    assert not {"condenser", "cocondenser", "ict"} & (nodes_of["marco-bert"] | nodes_of["adapt"])
    assert {"ict"} == {"condenser", "cocondenser", "ict"} & nodes_of["marco-ict"]
    assert {"cross-encoder", "soft-labels"} == {"cross-encoder", "soft-labels", "denoise"} & nodes_of["marco-soft"]
    assert {"cross-encoder", "soft-labels", "denoise"} <= nodes_of["marco-denoised"]
    assert not {"mine", "stage2"} & (nodes_of["low-data"] | nodes_of["marco-abs"])
    assert resolve("marco-abs").stage1.batch_order == "abs_greedy"


def test_marco_has_the_papers_numbers() -> None:
    r = resolve("marco")
    assert (r.condenser.head_layers, r.condenser.skip_from, r.condenser.budget) == (2, 6, "8 epochs")
    assert (r.cocondenser.batch_documents, r.cocondenser.optimiser.learning_rate) == (2048, 1e-4)
    assert (r.stage1.batch_queries, r.stage1.negatives_per_query, r.stage1.epochs) == (8, 7, 3)
    assert (r.stage1.optimiser.learning_rate, r.stage2.mix_negatives, r.encoder.tied) == (5e-6, "separate_epochs", True)
    assert (r.mine.depth, r.mine.number) == (200, 30)


def test_nq_has_dprs_set_up() -> None:
    r = resolve("nq")
    assert (r.stage1.batch_queries, r.stage1.negatives_per_query, r.stage1.epochs) == (128, 1, 40)
    assert (r.stage1.optimiser.warmup_steps, r.stage1.optimiser.warmup_ratio) == (1237, None)
    assert (r.stage1.optimiser.clip_norm, r.encoder.tied, r.encode.passage_tokens) == (2.0, False, 256)
