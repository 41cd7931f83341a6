"""The record of a run and its evaluation: complete, of another version, damaged, or from a pack."""

import json
from pathlib import Path
from typing import Any

import pytest
from encoders import ENCODER

from artifacts.records import Ref
from artifacts.runs import RunRecord
from flows.graph.run_schema import read_metrics, recipe_of
from flows.serving.engine import Engine
from pipeline.errors import InputError

RECIPE = {
    "encoder": ENCODER.model_dump(),
    "search": {"depth": 10, "approximate": None},
    "bm25": {"depth": 10},
    "evaluate": {"reciprocal_k": 60},
    "encode": {"passage_tokens": 128},
    "more": [1],
}
FIGURES = {"bm25": {"RR@10": {"mean": 0.5, "low": 0.4, "high": 0.6}}}
METRICS = {
    "winner_on_dev": "fusion",
    "dense": "stage1",
    "fusion": {"method": "sum", "weight": None},
    "labels": {"bm25": "BM25"},
    "splits": {"dev": {"systems": FIGURES, "questions": 3, "differences": []}},
    "config": {"relevance": 1},
}


def run(details: dict[str, Any]) -> RunRecord:
    ref = Ref("bm25", "k", "d", "d", Path("nowhere"), {})
    return RunRecord("tiny", "2026-01-01T00:00:00+00:00", {"bm25": ref}, details)


def test_a_complete_record_is_read() -> None:
    assert recipe_of(run({"recipe": RECIPE}), "encoder", "search", "bm25", "evaluate", "encode") == RECIPE
    assert Engine(run({"recipe": RECIPE}), METRICS).recipe == RECIPE
    assert Engine(run({"recipe": {}}), {**METRICS, "dense": None, "fusion": None}).recipe == {}


@pytest.mark.parametrize(
    ("details", "line"),
    [
        ({}, "recipe.it should be"),
        ({"ablation": {}}, "recipe.it should be"),
        ({"recipe": []}, "recipe.it should be"),
        ({"recipe": {}}, "its recipe lacks encoder and search and bm25 and evaluate"),
        ({"recipe": RECIPE | {"encoder": None}}, "its recipe lacks encoder"),
        ({"recipe": RECIPE | {"encoder": {}}}, r"recipe.encoder\."),
        ({"recipe": RECIPE | {"search": {"depth": "deep"}}}, r"recipe.search\.depth: "),
        ({"recipe": RECIPE | {"bm25": {"depth": -5}}}, r"recipe.bm25\.depth: "),
        ({"recipe": RECIPE | {"evaluate": {"reciprocal_k": float("nan")}}}, r"recipe.evaluate\.reciprocal_k: "),
        ({"recipe": RECIPE | {"example_question": [1]}}, "recipe.example_question: "),
    ],
)
def test_a_recipe_without_the_fields_for_search_is_reported(details: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=f"^the record of the run of tiny: {line}") as error:
        _ = Engine(run(details), METRICS).recipe
    assert "\n" not in str(error.value)


def written(folder: Path, metrics: dict[str, Any]) -> dict[str, Ref]:
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return {"evaluate": Ref("evaluate", "k", "d", "d", folder, {})}


def test_complete_metrics_are_read(tmp_path: Path) -> None:
    assert read_metrics(written(tmp_path, METRICS), "labels", "splits") == METRICS
    by_answers = {"dev": {"systems": {}, "questions": 0, "answers": {"systems": FIGURES, "questions": 3}}}
    read_metrics(written(tmp_path, METRICS | {"splits": by_answers}))
    read_metrics(written(tmp_path, METRICS | {"splits": {}}))  # of a collection without questions


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"winner_on_dev": 5}, "winner_on_dev: "),
        ({"winner_on_dev": "nobody"}, "winner_on_dev: "),
        ({"dense": []}, "dense: "),
        ({"fusion": {"weight": 1}}, "fusion.method: "),
        ({"labels": {"bm25": 1}}, "labels.bm25: "),
        ({"splits": {"dev": []}}, "splits.dev: "),
        ({"splits": {"dev": {"systems": {}, "questions": 1}}}, "splits.dev: names no system"),
        ({"splits": {"dev": {"systems": {"bm25": {"RR@10": {"mean": "high"}}}, "questions": 1}}}, "splits.dev.systems"),
        ({"config": None}, "config: "),
    ],
)
def test_metrics_of_wrong_types_are_reported(tmp_path: Path, changed: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=f"metrics.json: {line}") as error:
        read_metrics(written(tmp_path, METRICS | changed))
    assert "\n" not in str(error.value)
