"""What an artifact was built from, according to the store's records."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from artifacts.keys import Key, make_key
from artifacts.records import Ref
from artifacts.store import Hooks, Request, Store
from pipeline.notices import noticed
from pipeline.report.lineage import notices
from tasks.lineage import steps


def key(stage: str, code: str = "c0", **inputs: Ref) -> Key:
    identities = {name: ref.identity for name, ref in inputs.items()}
    return make_key(stage=stage, code={"a.py": code}, config={}, sources={}, inputs=identities, libraries={})


def build(store: Store, of_key: Key, text: str, recipe: str = "tiny", gpus: int | None = 0, **more) -> Ref:
    def make(out: Path, checkpoints: Path) -> dict:
        (out / "text").write_text(text)
        return {}

    return store.build(Request(of_key, node=of_key.stage, recipe=recipe, **more), make, Hooks(gpus=lambda: gpus)).ref


def test_every_artifact_appears_once_after_its_inputs(store: Store) -> None:
    ingest = build(store, key("ingest"), "a")
    tokens = build(store, key("tokens", collection=ingest), "b", gpus=2)
    bm25 = build(store, key("bm25", collection=ingest), "c", identity="key", gpus=None)
    model = build(store, key("model", tokens=tokens, bm25=bm25), "d")
    build(store, key("other"), "e")
    lineage = steps(store, {"model": model, "collection": ingest, "absent": None})
    assert [step.node for step in lineage] == ["ingest", "bm25", "tokens", "model"]
    assert [step.digest for step in lineage] == [ref.digest for ref in (ingest, bm25, tokens, model)]
    assert [step.gpus for step in lineage] == [0, None, 2, 0]
    assert all(step.seconds is not None and step.seconds >= 0 for step in lineage)
    assert lineage[0].code == lineage[1].code != ""
    assert "python" in lineage[0].versions


def test_notices_of_all_steps_are_reported(store: Store) -> None:
    lines = ["files left out: 2 (first: a.md, b.md)", "questions cut: 1"]

    def make(out: Path, checkpoints: Path) -> dict:
        (out / "text").write_text("a")
        return {"files": 1, **noticed(lines)}

    ingest = store.build(Request(key("ingest"), node="ingest-whole", recipe="tiny"), make, Hooks(gpus=lambda: 0)).ref
    tokens = build(store, key("tokens", collection=ingest), "b")
    assert notices(steps(store, {"tokens": tokens})) == [("ingest-whole", line) for line in lines]


def test_the_record_of_the_same_recipe_counts_for_equal_bytes(store: Store) -> None:
    """For example, two recipes give the same model by different steps."""
    starts = {recipe: build(store, key(recipe), recipe, recipe) for recipe in ("tiny", "other")}
    same = {recipe: build(store, key("model", start=start), "model", recipe) for recipe, start in starts.items()}
    assert same["tiny"].digest == same["other"].digest
    for recipe, model in same.items():
        run = build(store, key(f"run-{recipe}", checkpoint=model), f"run of {recipe}", recipe)
        assert [step.node for step in steps(store, {"run": run})] == [recipe, "model", f"run-{recipe}"]


def test_a_kept_artifact_has_the_code_that_built_it(store: Store) -> None:
    old = build(store, key("model", code="old"), "a")
    build(store, key("model", code="new"), "never", keep=True)
    kept = store.lookup(key("model", code="new"))
    assert kept is not None
    (before,), (after,) = steps(store, {"model": old}), steps(store, {"model": kept})
    assert after == replace(before, kept=True)


def test_a_removed_record_is_reported(store: Store) -> None:
    ingest = build(store, key("ingest"), "a")
    tokens = build(store, key("tokens", collection=ingest), "b")
    (store.keys / f"{ingest.key}.json").unlink()
    removed, remaining = steps(store, {"tokens": tokens})
    assert (removed.node, removed.digest, removed.seconds, removed.gpus) == ("collection", ingest.digest, None, None)
    assert remaining.node == "tokens"
    assert datetime.fromisoformat(remaining.created) <= datetime.now(UTC)


def test_code_that_was_changed_and_changed_back_gives_a_kept_step(store: Store) -> None:
    """After the first record is lost, each artifact is kept from the other: a cycle without a beginning."""
    build(store, key("model", code="old"), "a")
    new = build(store, key("model", code="new"), "never", keep=True)
    (store.keys / f"{key('model', code='old').hex}.json").unlink()
    old = build(store, key("model", code="old"), "never", keep=True)
    for ref in (old, new):
        [step] = steps(store, {"model": ref})
        assert step.kept
