"""The nodes that measure a model and its start on further collections (`evaluate.others`)."""

import pytest

from flows.dag import nodes
from flows.graph.early_checks import check_after
from flows.graph.preflight import missing
from flows.recipes.recipe import resolve
from pipeline.errors import InputError
from tasks.node import Node

OTHERS = "evaluate.others=[data/scifact, data/nfcorpus]"


def dag_of(*settings: str, recipe: str = "adapt") -> dict[str, Node]:
    return {node.name: node for node in nodes(resolve(recipe, settings))}


def inputs(node: str, *settings: str, recipe: str = "adapt") -> dict[str, str | None]:
    read = dag_of(*settings, recipe=recipe)[node].inputs
    return {argument: source.name if source else None for argument, source in read.items()}


OTHER_NODES = [
    *("encode-start-other-scifact", "index-start-other-scifact", "search-start-other-scifact"),
    *("encode-final-other-scifact", "index-final-other-scifact", "search-final-other-scifact"),
    "evaluate-other-scifact",
]


def test_a_model_and_its_start_are_measured_on_other_collections() -> None:
    off, dag = dag_of(), dag_of(OTHERS)
    added = [name for name in dag if name not in off]
    read = [f"{stage}-other-{name}" for name in ("scifact", "nfcorpus") for stage in ("ingest", "tokens")]
    assert added[:4] == read
    assert [*dag][4:8] == read  # before any training: they may be refused
    assert added[4:11] == OTHER_NODES
    assert added[-1] == "others"
    assert inputs("evaluate-other-scifact", OTHERS) == {
        "collection": "ingest-other-scifact",
        "bm25": None,
        "model": "search-start-other-scifact",
        "stage2": "search-final-other-scifact",
    }
    assert inputs("encode-start-other-scifact", OTHERS)["checkpoint"] == "initial"
    assert inputs("encode-final-other-scifact", OTHERS)["checkpoint"] == "stage2"
    search = inputs("search-final-other-scifact", OTHERS)
    assert (search["collection"], search["tokens"]) == ("ingest-other-scifact", "tokens-other-scifact")
    assert inputs("others", OTHERS) == {
        "on_scifact": "evaluate-other-scifact",
        "on_nfcorpus": "evaluate-other-nfcorpus",
    }
    assert inputs("report", OTHERS)["others"] == "others"
    for name in off:
        if name != "report":
            assert (dag[name].config, dag[name].shared) == (off[name].config, off[name].shared), name


def test_other_collections_are_searched_exactly_and_with_their_own_grades() -> None:
    own = ["index.kind=hnsw", "search.approximate={nprobe: 1, ef_search: 9}", "evaluate.relevance=2"]
    systems = ["evaluate.systems={GAR: gar.trec}", "evaluate.fusions=[[bm25, GAR]]"]
    dag = dag_of(OTHERS, *own, *systems)
    assert dag["index-final-other-scifact"].config.kind == "flat"
    assert dag["search-final-other-scifact"].config.approximate is None
    assert dag["search-stage2"].config.approximate is not None
    config = dag["evaluate-other-scifact"].config
    assert (config.others, config.systems, config.fusions, config.relevance) == ([], {}, [], 1)


def test_the_vectors_of_an_adapted_model_are_mapped_on_other_collections_too() -> None:
    settings = [OTHERS, "adapt.queries=9", "model=somewhere"]
    mapped = inputs("encode-final-other-scifact", *settings, recipe="text")
    assert mapped == {"checkpoint": "adapted", "embeddings": "encode-start-other-scifact"}
    assert [*inputs("evaluate-other-scifact", *settings, recipe="text")][2:] == ["model", "adapted"]
    encoded = inputs("encode-final-other-scifact", *settings, "adapt.trains=both_encoders", recipe="text")
    assert encoded["tokens"] == "tokens-other-scifact"


def test_the_start_is_the_existing_model_before_any_training(tmp_path) -> None:
    trained = [OTHERS, "cocondenser.budget=9 steps", "initial.new_mlm_head=true"]
    assert inputs("encode-start-other-scifact", *trained)["checkpoint"] == "initial"
    finished = [OTHERS, f"cocondenser.checkpoint={tmp_path}"]
    assert inputs("encode-start-other-scifact", *finished, recipe="marco")["checkpoint"] == "cocondenser"
    untuned = [*trained, "stage1.loss=learning_to_rank", "rounds.number=0"]
    assert [*inputs("evaluate-other-scifact", *untuned)][2:] == ["model", "pretrained"]


def test_others_need_a_model_with_a_start() -> None:
    with pytest.raises(InputError, match=r"^--set evaluate\.others=.*: measures an existing model before and after"):
        resolve("tiny", [OTHERS])
    with pytest.raises(InputError, match=r"^evaluate\.others: this recipe does not change its model"):
        nodes(resolve("text", [OTHERS, "model=somewhere"]))
    with pytest.raises(InputError, match=r"evaluate\.others: two collections are called scifact: rename a folder"):
        resolve("adapt", ["evaluate.others=[a/scifact, b/scifact]"])
    with pytest.raises(InputError, match=r"evaluate\.others: \.: has no name"):
        resolve("adapt", ["evaluate.others=[.]"])
    with pytest.raises(InputError, match=r"^evaluate\.others: a/\.\./own is the recipe's own collection: leave it out"):
        nodes(resolve("adapt", ["ingest.folder=own", "evaluate.others=[a/../own]"]))
    assert "ingest-other-my-data-2" in dag_of("evaluate.others=['a/my data: 2']")


def test_a_folder_of_other_collections_is_checked_before_the_run(tmp_path) -> None:
    lines = missing(dag_of(f"evaluate.others=[{tmp_path / 'absent'}]")["ingest-other-absent"])
    assert lines == [f"evaluate.others: {tmp_path / 'absent'} is not a folder"]


def test_early_checks_wait_for_the_nodes_of_a_node_s_own_collection() -> None:
    dag = dag_of(OTHERS)
    for name, own in (("evaluate-other-scifact", "ingest"), ("encode-start-other-scifact", "tokens")):
        other = dag[name]
        assert check_after(other, f"{own}-other-scifact") is not None
        assert check_after(other, own) is None
        assert check_after(other, f"{own}-other-nfcorpus") is None
    assert check_after(dag["evaluate"], "ingest") is not None
    assert check_after(dag["evaluate"], "ingest-other-scifact") is None
