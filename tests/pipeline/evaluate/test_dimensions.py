"""The table of a model's dimensions."""

import json

import pytest
from encoders import ENCODER
from evaluating import EVALUATE
from indexes import FLAT

from pipeline.dense.encode import EncodeConfig, encode
from pipeline.dense.index import index
from pipeline.dense.search import SearchConfig, search
from pipeline.errors import InputError
from pipeline.evaluate.dimensions import dimensions
from pipeline.evaluate.evaluate import evaluate
from pipeline.evaluate.tables.dimensions_table import dimensions_table
from pipeline.runtime.lineage import Step

SEARCH = SearchConfig(
    splits=["dev", "test"], unjudged_train_questions=False, depth=100, train_depth=10, approximate=None
)


@pytest.fixture
def inputs(world, work, inline):
    """The stage's inputs, of the dimensions 16 and 4."""
    embeddings, found = work("embeddings"), {}
    encode(
        EncodeConfig(passage_tokens=40, shard_passages=32),
        ENCODER,
        world.collection,
        world.tokens,
        world.checkpoint,
        embeddings,
    )
    for dimension in (16, 4):
        indexed, run = work(f"index-{dimension}"), work(f"run-{dimension}")
        index(FLAT.model_copy(update={"dimension": dimension}), world.collection, embeddings.out, indexed)
        search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, indexed.out, run)
        found |= {f"index_{dimension}": indexed.out, f"run_{dimension}": run.out}
    return found


def test_each_dimension_has_the_figures_of_the_evaluation(world, work, inputs):
    done, judged = work("dimensions"), work("evaluate")
    digest = "d1" * 32
    inputs["run_16"] = inputs["run_16"].rename(inputs["run_16"].with_name(digest))  # as in a store
    search_16 = Step("search", "search", digest, "", False, 1.0, 0, {}, "", questions_per_second=1234.5)
    metrics = dimensions(EVALUATE, world.collection, done, [search_16], **inputs)
    written = json.loads((done.out / "dimensions.json").read_text())
    assert (written["split"], written["questions"]) == ("test", 18)
    assert [(row["dimension"], row["bytes"]) for row in written["rows"]] == [(16, 64), (4, 16)]
    assert [row["questions_per_second"] for row in written["rows"]] == [1234.5, None]
    evaluate(EVALUATE, world.collection, None, judged, stage1=inputs["run_16"], stage2=inputs["run_4"])
    systems = json.loads((judged.out / "metrics.json").read_text())["splits"]["test"]["systems"]
    for row, system in zip(written["rows"], ("stage1", "stage2"), strict=True):
        for name in ("nDCG@10", "R@100"):
            assert row[name]["mean"] == systems[system][name]["mean"] == metrics[f"{row['dimension']}/{name}"]
            assert row[name]["low"] <= row[name]["mean"] <= row[name]["high"]
    head, rows = dimensions_table(written)
    assert head == ["dimensions, 18 questions of test", "nDCG@10", "R@100", "bytes per passage", "questions/s"]
    assert all("[" in cell for row in rows for cell in row[1:3])
    assert [(row[0], *row[-2:]) for row in rows] == [("16", "64", "1,234"), ("4", "16", "")]


def test_a_collection_without_questions_to_measure_is_refused(world, work, inputs):
    config = EVALUATE.model_copy(update={"relevance": 2})
    with pytest.raises(InputError, match="no dev or test question has a relevant passage"):
        dimensions(config, world.collection, work("dimensions"), **inputs)
