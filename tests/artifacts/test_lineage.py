"""Lineage if stages give equal bytes: the key record shows what was built, and no artifact is built from itself."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from packs import members

from artifacts import records
from artifacts.keys import make_key
from artifacts.lineage import BuiltArtifact, ancestry
from artifacts.packs.pack import pack
from artifacts.packs.unpack import unpack
from artifacts.records import Record, Ref
from artifacts.runs import RunRecord, record_run, runs
from artifacts.store import Request, Store

Build = Callable[..., Ref]


@pytest.fixture(params=["keys", "older"])
def build(store: Store, request: pytest.FixtureRequest) -> Build:
    """`build("stage1", "bytes", input=ref)`; a record names the keys of its inputs, or is an older one without them."""

    def built(node: str, text: str, recipe: str = "tiny", identity: str = "content", **inputs: Ref) -> Ref:
        identities = {name: ref.identity for name, ref in inputs.items()}
        stage = node.rstrip("0123456789")
        config = {"node": node} if stage == "stage" else {}
        key = make_key(stage=stage, code={"a.py": "c"}, config=config, sources={}, inputs=identities, libraries={})

        def make(out, checkpoints) -> dict:
            (out / "text").write_text(text)
            return {}

        reads = inputs if request.param == "keys" else {}
        return store.build(Request(key, node=node, recipe=recipe, identity=identity, reads=reads), make).ref

    return built


def nodes_of(store: Store, *ends: Ref) -> list[str]:
    """The nodes that lead to `ends`; each once, after all of its inputs."""
    lineage = ancestry(store, [BuiltArtifact("end", ref.identity, store.record(ref.key)) for ref in ends])
    keys = [artifact.record.key for artifact in lineage if artifact.record]
    assert len({*keys}) == len(keys) == len(lineage)
    seen: set[str] = set()
    for artifact in lineage:
        assert {*artifact.record.inputs.values()} <= seen
        seen.add(artifact.identity)
    return [artifact.record.node for artifact in lineage]


def test_two_trainings_of_equal_bytes_are_distinguished(store: Store, build: Build) -> None:
    """The second reads results of the first, by stages that have the same key for both."""
    tokens = build("tokens", "a")
    stage1 = build("stage1", "model", tokens=tokens)
    run1 = build("search", "run", model=build("encode", "vectors", model=stage1))
    stage2 = build("stage2", "model", tokens=tokens, mined=build("mine", "negatives", run=run1))
    run2 = build("search", "run", model=build("encode", "vectors", model=stage2))
    assert stage1.identity == stage2.identity
    assert run1.key == run2.key
    evaluate = build("evaluate", "figures", run1=run1, run2=run2)
    names = nodes_of(store, evaluate)
    assert names == ["tokens", "stage1", "encode", "search", "evaluate"]
    assert nodes_of(store, evaluate, stage2) == [*names, "mine", "stage2"]
    assert nodes_of(store, stage2) == [*names[:4], "mine", "stage2"]
    assert nodes_of(store, stage2, stage1, evaluate)[-1] == "evaluate"


@pytest.mark.parametrize("length", [1, 2, 7])
def test_stages_that_copy_their_input_are_in_the_lineage(store: Store, build: Build, length: int) -> None:
    last = first = build("stage0", "same")
    for n in range(1, length + 1):
        last = build(f"stage{n}", "same", given=last)
    assert last.identity == first.identity
    assert last.key != first.key
    names = nodes_of(store, last)
    assert names[-1] == f"stage{length}"
    assert names[0] == "stage0"
    if store.record(last.key).input_keys:
        assert names == [f"stage{n}" for n in range(length + 1)]


def test_the_record_of_the_first_training_may_be_missing(store: Store, build: Build) -> None:
    stage1 = build("stage1", "model")
    encode = build("encode", "vectors", model=stage1)
    stage2 = build("stage2", "model", mined=build("mine", "negatives", vectors=encode))
    (store.keys / f"{stage1.key}.json").unlink()
    lineage = ancestry(store, [BuiltArtifact("end", stage2.identity, store.record(stage2.key))])
    assert [(artifact.name, artifact.record and artifact.record.node) for artifact in lineage] == [
        ("model", None),
        ("vectors", "encode"),
        ("mined", "mine"),
        ("end", "stage2"),
    ]


def test_a_stage_built_again_after_its_results_keeps_its_first_input(store: Store, build: Build) -> None:
    """Its record now names the second model, which was built from it. The first model is the right input."""
    stage1 = build("stage1", "model")
    encode = build("encode", "vectors", model=stage1)
    stage2 = build("stage2", "model", vectors=encode)
    (store.keys / f"{encode.key}.json").unlink()
    again = build("encode", "vectors", model=stage2)
    assert again.key == encode.key
    assert nodes_of(store, again) == ["stage1", "encode"]
    assert nodes_of(store, stage2) == ["stage1", "encode", "stage2"]


def test_two_recipes_share_a_stage_that_copies_its_input(store: Store, build: Build) -> None:
    ends = {}
    for recipe in ("tiny", "other"):
        start = build("stage1" if recipe == "tiny" else "stage2", recipe, recipe)
        middle = build("copy", "same", recipe, given=start)
        ends[recipe] = build("stage3" if recipe == "tiny" else "stage4", f"end of {recipe}", recipe, given=middle)
    assert nodes_of(store, ends["tiny"]) == ["stage1", "copy", "stage3"]
    assert nodes_of(store, ends["other"]) == ["stage2", "copy", "stage4"]


def test_a_rebuilt_input_of_equal_bytes_is_named_once(store: Store, build: Build) -> None:
    """For example, the code of ingest changed and its bytes did not: artifacts that read it stay the same."""
    old = build("ingest", "passages")
    tokens = build("tokens", "tokens", collection=old)
    key = make_key(stage="ingest", code={"a.py": "new"}, config={}, sources={}, inputs={}, libraries={})

    def make(out, checkpoints) -> dict:
        (out / "text").write_text("passages")
        return {}

    new = store.build(Request(key, node="ingest", recipe="tiny"), make).ref
    assert (new.identity, new.key == old.key) == (old.identity, False)
    assert nodes_of(store, tokens, new) == ["ingest", "tokens"]
    assert nodes_of(store, new, tokens) == ["ingest", "tokens"]


def test_a_chain_longer_than_pythons_stack_is_followed(store: Store) -> None:
    store.prepare()
    key = make_key(stage="s", code={}, config={}, sources={}, inputs={}, libraries={}).hex
    first = last = Record(
        **dict.fromkeys(("key", "digest", "identity"), key),
        **dict.fromkeys(("stage", "node", "host"), "s"),
        **{name: {} for name in ("code", "config", "sources", "inputs", "libraries", "metrics", "versions")},
        **dict.fromkeys(("bytes", "seconds"), 1),
        created="2026-01-01T00:00:00+00:00",
        kept_from=None,
        recipe=None,
    )
    for n in range(400):
        digest = f"{n:064x}"
        (store.keys / f"{last.key}.json").write_bytes(records.dump_record(last))
        last = replace(first, key=digest, digest=digest, identity=digest, inputs={"given": last.identity})
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 300)
    try:
        assert len(ancestry(store, [BuiltArtifact("end", last.identity, last)])) == 401
    finally:
        sys.setrecursionlimit(before)


def test_a_run_of_equal_artifacts_is_packed_and_unpacked(store: Store, build: Build, tmp_path) -> None:
    stage1 = build("stage1", "model")
    encode = build("encode", "vectors", model=stage1)
    stage2 = build("stage2", "model", vectors=encode)
    nodes = {"stage1": stage1, "encode-stage1": encode, "stage2": stage2, "encode-stage2": encode}
    record_run(store, "tiny", nodes, {"recipe": {}}, datetime(2026, 11, 22, tzinfo=UTC))
    run: RunRecord = runs(store)[0]
    packed = pack(store, run, tmp_path / "run.tar.zst")
    assert packed.artifacts == 3
    names = [name for name, _ in members(tmp_path / "run.tar.zst")]
    assert sum(name.startswith("keys/") for name in names) == 3
    other = Store(tmp_path / "other")
    unpack(other, tmp_path / "run.tar.zst")
    [imported] = runs(other)
    assert {node: ref.key for node, ref in imported.nodes.items()} == {node: ref.key for node, ref in nodes.items()}
    assert nodes_of(other, imported.nodes["stage2"]) == ["stage1", "encode", "stage2"]
