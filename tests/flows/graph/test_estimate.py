"""The estimates of a plan on a new store."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ready import beir, sentence
from typer.testing import CliRunner

from artifacts.records import Ref
from artifacts.store import Store
from flows.cli.main import app
from flows.dag import nodes
from flows.graph.estimate import shape_of, with_estimates
from flows.graph.plan import Step, plan
from flows.graph.text_size import TextSize, text_size
from flows.graph.workload import WORKLOADS, Shape
from flows.recipes.recipe import resolve
from pipeline.data.collection import schemas, write_table
from pipeline.training.speed import Layer
from tasks.node import Node
from tasks.terminal import rough_duration

QUESTIONS = {"train": 100, "dev": 7, "test": 20}
TEXTS = TextSize(passages=1000, documents=500, tokens=60_000, title=8.0, question=10.0, questions=QUESTIONS)
INGEST = {
    "documents": 500,
    "passages": 1000,
    "words": 40_000,
    "train_queries": 100,
    "dev_queries": 7,
    "test_queries": 20,
}
TOKENS = {"documents": 500, "passages": 1000, "passage_tokens": 60_000, "title_tokens": 8000, "queries": 120}


def node(name: str, recipe: str = "tiny", *settings: str) -> Node:
    return next(one for one in nodes(resolve(recipe, settings)) if one.name == name)


PSEUDO = ["depth=5", "positive_above=0.9", "negative_below=0.1", "positives=null", "negatives=null"]
SCORED = [
    *("rerank.depth=30", "rerank.splits=[dev,test]", "ensemble=2", "cross_encoder.loss=pointwise"),
    *("search.unjudged_train_questions=true", *(f"pseudo_labels.{one}" for one in PSEUDO)),
]
"""Stages that score pairs."""


def waiting(dag: Sequence[Node], **metrics: dict) -> dict[str, Step]:
    """Steps of a plan where these nodes are built."""
    refs = {name: Ref(name, "k", "d", "i", Path(name), own) for name, own in metrics.items()}
    return {one.name: Step(one.name, "unknown", [], None, None, refs.get(one.name)) for one in dag}


def size(recipe: str, *settings: str, **metrics: dict) -> TextSize | None:
    dag = nodes(resolve(recipe, settings))
    return text_size(next(one for one in dag if one.name == "tokens"), waiting(dag, **metrics))


def test_the_shape_is_that_of_the_model_that_a_node_begins_with(tmp_path: Path) -> None:
    own = Shape(Layer(32, 64, 2), layers=2, vocabulary=1000)
    assert [shape_of(node(name)) for name in ("condenser", "stage2", "encode-stage2")] == [own] * 3
    folder = sentence(tmp_path / "m")
    existing = shape_of(node("encode-stage1", "adapt", f"initial.checkpoint={folder}"))
    assert existing is not None
    assert (existing.layer, existing.layers) == (Layer(24, 48, 2), 2)
    assert [shape_of(node(name, "tiny", *SCORED)) for name in ("rerank", "pseudo-labels")] == [own] * 2
    assert shape_of(node("stage1", "tiny", f"condenser.checkpoint={folder}")) == existing
    assert shape_of(node("stage1", "adapt", "initial.checkpoint=/gone")) is None  # the run reports it


def test_the_work_of_a_stage() -> None:
    shape = Shape(Layer(hidden_size=10, intermediate_size=40, heads=1), layers=3, vocabulary=90)
    keys_values = 200 / (400 + 800)

    def work(name: str, recipe: str, *settings: str) -> float:
        one = node(name, recipe, *settings)
        result = WORKLOADS[one.stage](one, shape, replace(TEXTS, unjudged=40))
        assert result is not None
        assert result.trains == (not name.startswith(("encode", "rerank", "pseudo", "soft")))
        return result.amount

    passage = 60 + 8 + 2  # with its title
    assert work("encode-stage1", "tiny") == pytest.approx(1000 * passage * (2 + keys_values))
    assert work("encode-stage1", "tiny", "encode.passage_tokens=50") == pytest.approx(1000 * 50 * (2 + keys_values))
    assert work("encode-stage1", "tiny", "encoder.pooling=mean") == pytest.approx(1000 * passage * 3)
    pair = 12 + 2 * passage
    assert work("stage1", "tiny", "stage1.epochs=4") == pytest.approx(400 * pair * (2 + keys_values))
    assert work("stage2", "tiny", "stage2.mix_negatives=separate_epochs") == pytest.approx(
        200 * pair * (2 + keys_values)
    )
    assert work("stage1", "tiny", "train_subset.queries=7") == pytest.approx(7 * pair * (2 + keys_values))
    masked = keys_values + 0.15 * (1 - keys_values)
    predicted = 0.15 * 10 * 100 / 1200
    own = 2 + masked + predicted
    assert work("condenser", "tiny", "condenser.budget=5000 tokens", "condenser.head_layers=2") == pytest.approx(
        5000 * (own + 1 + masked + predicted)
    )
    assert work("condenser", "tiny", "condenser.budget=2 steps", "condenser.objective=mlm", "condenser.head_layers=0",
                "cocondenser.budget=null") == pytest.approx(2 * 4096 * own)  # fmt: skip
    assert work("cocondenser", "tiny") == pytest.approx(6 * 4096 * (own + masked + predicted))
    read = min(60 + 8 + 2, resolve("tiny").cross_encoder.passage_tokens)
    scored = (12 + read) * (2 + keys_values)
    assert work("rerank", "tiny", *SCORED) == pytest.approx(2 * 27 * 30 * scored)
    assert work("pseudo-labels", "tiny", *SCORED) == pytest.approx(40 * 5 * scored)
    soft, folds = "stage2.loss=soft_labels", "cross_encoder.folds=4"
    both = ("adapt.queries=9", "adapt.trains=both_encoders", "adapt.depth=50", "adapt.both_encoders.steps=7")
    trained, guard = 7 * 16 * (12 + 8 * passage), 1000 * passage / 3
    assert work("adapted", "tiny", *both) == pytest.approx((trained + guard) * (2 + keys_values))
    assert work("soft-labels", "tiny", soft, folds) == pytest.approx(work("soft-labels", "tiny", soft))
    assert work("cross-encoder-fold-2", "tiny", soft, folds) == pytest.approx(
        0.75 * work("cross-encoder", "tiny", soft)
    )
    one = node("stage1")
    unknown = TextSize(1000, 500, 60_000, 8.0, 10.0, questions=None)
    assert WORKLOADS["finetune"](one, shape, unknown) is None


def test_texts_are_counted_by_finished_stages_else_guessed(tmp_path: Path) -> None:
    built = size("tiny", ingest=INGEST, tokens={**TOKENS, "query_tokens": 1200})
    assert built == TEXTS
    assert built.unjudged is None  # no judgements there
    read = size("tiny", ingest=INGEST)
    assert read is not None
    assert (read.passages, read.tokens, read.questions) == (1000, 56_000, QUESTIONS)
    guessed = size("tiny")  # of 300 documents
    assert guessed is not None
    assert 10_000 < guessed.tokens <= 300 * 300
    folder = beir(tmp_path / "lamps", ["train", "test"])
    of_folder = size("adapt", f"ingest.folder={folder}")
    assert of_folder is not None
    assert of_folder.tokens == (folder / "corpus.jsonl").stat().st_size / 4
    assert of_folder.questions == {"train": 8, "dev": 0, "test": 8}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("one two three four " * 100)
    (tmp_path / "notes" / "b.html").write_text("<p>" + "one two three four " * 100)
    packed = tmp_path / "notes" / "c.HTM.gz"
    packed.write_bytes(gzip.compress(b"<p>one two three four"))
    notes = size("text", f"ingest.path={tmp_path / 'notes'}")
    assert notes is not None
    assert notes.tokens == pytest.approx((1900 + 0.33 * (1903 + 2.5 * packed.stat().st_size)) / 4)
    assert size("adapt", "ingest.folder=/gone") is None
    assert size("tiny", ingest={**INGEST, "passages": 0, "words": 0}) is None


def test_only_stages_with_a_model_that_were_never_built_are_estimated(store: Store) -> None:
    recipe = resolve("tiny")
    dag = nodes(recipe)
    steps = with_estimates(plan(store, dag, "tiny"), dag, recipe.machine)
    assert [step.node for step in steps] == [one.name for one in dag]
    estimated = [step.node for step in steps if step.estimated]
    models = ("pretrained", "stage1", "stage2")
    assert {*estimated} == {"condenser", "cocondenser", "stage1", "stage2", *(f"encode-{name}" for name in models)}
    for step in steps:
        assert (step.seconds is not None) == step.estimated
    known = [step if step.node != "stage1" else Step("stage1", "build", [], 7.0, 1, None) for step in steps]
    assert next(step for step in with_estimates(known, dag, recipe.machine) if step.node == "stage1").seconds == 7.0
    elsewhere = recipe.machine.model_copy(update={"ray": "local"})
    assert not any(step.estimated for step in with_estimates(plan(store, dag, "tiny"), dag, elsewhere))


def test_training_questions_without_a_relevant_passage_are_counted(tmp_path: Path) -> None:
    judged = [("train", "a", "p", 1), ("train", "a", "q", 1), ("train", "b", "p", 0), ("dev", "c", "p", 1)]
    write_table(tmp_path / "qrels.parquet", schemas()["qrels"], judged)
    dag = nodes(resolve("tiny"))
    steps = waiting(dag)
    steps["ingest"] = replace(steps["ingest"], ref=Ref("ingest", "k", "d", "i", tmp_path, INGEST))
    texts = text_size(next(one for one in dag if one.name == "tokens"), steps)
    assert texts is not None
    assert texts.unjudged == 99


def test_plan_shows_estimates_with_one_digit(store: Store) -> None:
    options = ["tiny", "--store", str(store.root)]
    steps = json.loads(CliRunner().invoke(app, ["plan", *options, "--json"]).stdout)
    by_name = {step["node"]: step for step in steps}
    assert by_name["stage1"]["estimated"] is True
    stage1, texts = node("stage1"), size("tiny")
    shape = shape_of(stage1)
    assert shape is not None
    assert texts is not None
    work = WORKLOADS["finetune"](stage1, shape, texts)
    assert work is not None
    seconds = 3.0 + work.amount / 1e5  # the start and the speed of trainings in the conftest's measurement
    assert by_name["stage1"]["seconds"] == pytest.approx(seconds)
    assert (by_name["bm25"]["estimated"], by_name["bm25"]["seconds"]) == (False, None)
    shown = CliRunner().invoke(app, ["plan", *options], env={"COLUMNS": "120"}).stdout
    line = next(line for line in shown.splitlines() if line.startswith("stage1 "))
    assert line.split()[-3:] == [*rough_duration(seconds).split(), "?"]
    assert "stages never built in this store), by the size of the texts and this machine's speed" in " ".join(
        shown.split()
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.2, "~1 s"), (8.6, "~9 s"), (44, "~40 s"), (94, "~90 s"), (96, "~2 min"), (1190, "~20 min")),
        *((5600, "~90 min"), (5800, "~2 h"), (90_000, "~20 h"), (200_000, "~2 days"), (9e6, "~100 days")),
    ],
)
def test_a_rough_duration_has_one_digit(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text
