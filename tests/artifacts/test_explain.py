"""Why a stage would run."""

import pytest

from artifacts.explain import explain, nearest_record
from artifacts.store import Request


@pytest.fixture
def built(store, key, writes):
    return store.build(Request(key(), node="stage1"), writes()).ref


def test_an_existing_artifact_needs_no_explanation(store, key, built):
    assert explain(store, key(), "stage1") == []


def test_a_stage_without_artifacts_is_reported(store, key, built):
    assert explain(store, key(stage="other"), "other") == ["nothing built yet"]


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"config": {"steps": 4, "optimiser": {"rate": 0.1}}}, ["config steps: 3 -> 4"]),
        ({"config": {"steps": 3, "optimiser": {"rate": None}}}, ["config optimiser.rate: 0.1 -> null"]),
        (
            {"config": {"steps": 3, "optimiser": {"rate": 0.1, "betas": [0.9]}}},
            ["config optimiser.betas: (none) -> [0.9]"],
        ),
        ({"config": {"steps": 3}}, ["config optimiser.rate: 0.1 -> (none)"]),
        ({"config": {"steps": 3, "optimiser": {"rate": "r" * 99}}}, [f'config optimiser.rate: 0.1 -> "{"r" * 58}…']),
        (
            {"config": {"steps": "می\u200cخواهم\x85", "optimiser": {"rate": 0.1}}},
            ['config steps: 3 -> "می\u200cخواهم\\x85"'],
        ),
        ({"code": {"pipeline/train.py": "c1"}}, ["code of pipeline/train.py changed"]),
        (
            {"code": {"pipeline/loss.py": "c0"}},
            ["code of pipeline/loss.py is new", "code of pipeline/train.py is no longer used"],
        ),
        ({"inputs": {"tokens": "i1"}}, ["input tokens changed"]),
        ({"inputs": {"tokens": "i0", "mined": "i2"}}, ["input mined is new"]),
        ({"sources": {"corpus": "s1"}}, ["source corpus changed"]),
        ({"libraries": {"tokenizers": "0.23"}}, ['library tokenizers: (none) -> "0.23"']),
    ],
)
def test_each_difference_is_a_line(store, key, built, changed, lines):
    assert explain(store, key(**changed), "stage1") == lines


def test_a_broken_artifact_is_named_and_left_in_place(store, key, built):
    (built.path / "model.bin").write_text("")
    line = f"artifact missing or broken: objects/{built.digest[:12]}: model.bin has 0 bytes, not 5"
    assert explain(store, key(), "stage1") == [line]
    assert list(store.broken.iterdir()) == []
    (built.path / "model.bin").unlink()
    assert explain(store, key(), "stage1") == [line.replace("has 0 bytes, not 5", "is missing")]


def test_the_nearest_record_is_of_the_same_node_then_the_least_different_then_the_newest(store, key, writes):
    def build(node, **config):
        return store.build(Request(key(config=config), node=node), writes(str(config))).ref.key

    far = build("stage1", a=1, b=1, c=1)
    near = build("stage1", a=1, b=2, c=1)
    newer = build("stage1", a=1, b=3, c=1)
    build("stage2", a=1, b=4, c=2)
    target = key(config={"a": 1, "b": 4, "c": 1})
    assert nearest_record(store, target, "stage1").key == newer
    assert nearest_record(store, key(config={"a": 1, "b": 2, "c": 9}), "stage1").key == near
    assert nearest_record(store, key(config={"a": 1, "b": 1, "c": 9}), "stage1").key == far
    assert explain(store, target, "stage2") == ["config c: 2 -> 1"]
    assert nearest_record(store, target, "stage3").config == {"a": 1, "b": 4, "c": 2}


def test_an_artifact_of_another_recipe_explains_little(store, key, writes):
    """The demo's reader says nothing about a folder of texts."""
    other = {"a": 1, "b": 1, "c": 1, "d": 1}
    store.build(Request(key(config=other), node="ingest", recipe="demo"), writes())
    assert explain(store, key(config={**other, "a": 2}), "ingest", "text") == ["config a: 1 -> 2"]
    unlike = key(config={"a": 2, "b": 2, "c": 2, "d": 2})
    assert explain(store, unlike, "ingest", "text") == ["nothing built yet by the recipe text"]
    assert len(explain(store, unlike, "ingest", "demo")) == len(other)
    own = {"a": 2, "b": 1, "c": 2, "d": 3}
    store.build(Request(key(config=own), node="ingest", recipe="text"), writes("2"))
    store.build(Request(key(config={**own, "d": 2, "b": 2, "c": 1}), node="ingest", recipe="demo"), writes("3"))
    assert explain(store, unlike, "ingest", "text") == ["config b: 1 -> 2", "config d: 3 -> 2"]
