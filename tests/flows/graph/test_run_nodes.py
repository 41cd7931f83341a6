"""A run that finds a damaged artifact builds it again."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from unscheduled import built, run_of, without_prefect

from artifacts import locks
from artifacts.errors import Damaged, StoreError
from artifacts.keys import make_key
from artifacts.records import Ref
from artifacts.store import Request, Store
from flows.dag import nodes
from flows.graph import run_nodes
from flows.recipes.recipe import resolve
from pipeline.errors import InputError
from tasks.node import Node, Order


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(run_nodes, "report_line", lines.append)
    return lines


@pytest.fixture
def dag() -> list[Node]:
    return nodes(resolve("tiny"))


def build(store: Store, name: str, before: Ref | None = None) -> Ref:
    """An artifact that holds the text of its input and its own name."""

    def make(out: Path, checkpoints: Path) -> dict[str, Any]:
        (out / "text").write_text((before.path / "text").read_text() + name if before else name)
        return {}

    inputs = {"before": before.identity} if before else {}
    return store.build(Request(make_key(name, {}, {}, {}, inputs, {}), node=name, reads={"before": before}), make).ref


def flip(ref: Ref) -> None:
    data = bytearray((ref.path / "text").read_bytes())
    data[0] ^= 1
    (ref.path / "text").write_bytes(data)


def chain(store: Store, tries: list[int], names: tuple[str, ...]) -> Callable[[], dict[str, Ref]]:
    def make() -> dict[str, Ref]:
        tries.append(1)
        refs: dict[str, Ref] = {}
        for name in names:
            refs[name] = build(store, name, next(reversed(refs.values()), None))
        return refs

    return make


@pytest.mark.parametrize("damaged", ["ingest", "tokens", "bm25"])
def test_a_damaged_input_is_built_again(store: Store, dag: list[Node], messages: list[str], damaged: str) -> None:
    before = chain(store, [], ("ingest", "tokens", "bm25"))()
    flip(before[damaged])
    tries: list[int] = []
    make = chain(store, tries, ("ingest", "tokens", "bm25", "evaluate"))
    run_nodes.until_whole(store, make, dag)
    if damaged == "bm25":  # only artifacts that the run read are checked
        assert len(tries) == 2
        assert messages == [
            f"{store.root}: bm25 (objects/{before['bm25'].digest[:12]}): text was changed: set aside; it is built again"
        ]
    refs = make()
    assert (refs["evaluate"].path / "text").read_text() == "ingesttokensbm25evaluate"
    assert {name: refs[name].digest for name in before} == {name: ref.digest for name, ref in before.items()}


@pytest.mark.parametrize("only", ["tokens", "evaluate", "report"])
def test_a_run_of_one_stage_does_not_promise_to_build_its_inputs(
    store: Store, dag: list[Node], messages: list[str], only: str
) -> None:
    before = build(store, "ingest")
    flip(before)

    def make() -> dict[str, Ref]:
        if not before.path.exists():
            raise InputError("--only: needs ingest")
        return {only: build(store, only, before)}

    with pytest.raises(InputError, match="needs ingest"):
        run_nodes.until_whole(store, make, [node for node in dag if node.name == only])
    assert messages == [f"{store.root}: ingest (objects/{before.digest[:12]}): text was changed: set aside"]


@pytest.mark.parametrize("name", ["evaluate", "report"])
def test_artifacts_that_are_shown_at_the_end_are_hashed(
    store: Store, dag: list[Node], messages: list[str], name: str
) -> None:
    make = chain(store, [], ("ingest", "evaluate", "report"))
    before = make()
    flip(before[name])
    run_nodes.until_whole(store, make, dag)
    assert len(messages) == 1
    assert (before[name].path / "text").read_text().startswith("ingest")


def test_damage_that_appears_again_ends_the_run(store: Store, dag: list[Node], messages: list[str]) -> None:
    make = chain(store, [], ("ingest", "evaluate"))

    def damaging() -> dict[str, Ref]:
        refs = make()
        flip(refs["evaluate"])
        return refs

    with pytest.raises(Damaged, match=r"evaluate .*: text was changed: set aside$"):
        run_nodes.until_whole(store, damaging, dag)
    assert len(messages) == 1


class Recorded(Exception):
    """Raised instead of recording a run."""


@pytest.mark.parametrize("fails", [False, True], ids=["whole", "failing"])
@pytest.mark.parametrize("continues", [False, True])
def test_a_run_holds_its_lock_until_it_is_recorded(
    store: Store, dag: list[Node], monkeypatch: pytest.MonkeyPatch, continues: bool, fails: bool
) -> None:
    lock_counts: list[int] = []

    def count_locks(*_: Any) -> None:
        lock_counts.append(sum(locks.is_held(path) for path in store.locks.glob("run-*.lock")))

    def build(*_: Any) -> None:
        count_locks()
        if fails:
            raise InputError("a failure of the whole run")

    def record(*_: Any) -> None:
        count_locks()
        raise Recorded

    without_prefect(monkeypatch)
    monkeypatch.setattr(run_nodes, "until_whole", build)
    monkeypatch.setattr(run_nodes, "record_run", record)
    recorded = continues or not fails
    with pytest.raises(Recorded if recorded else InputError):
        run_nodes.run_graph(run_of(store, dag, continues=continues), lambda *_: None, lambda *_: None)
    assert lock_counts == [1, 1] if recorded else [1]
    assert list(store.locks.glob("run-*.lock")) == []


@pytest.mark.parametrize("continues", [False, True])
def test_a_node_that_fails_stops_the_run_or_only_the_nodes_that_read_it(
    store: Store, dag: list[Node], monkeypatch: pytest.MonkeyPatch, continues: bool
) -> None:
    def build(order: Order, inputs: Mapping[str, Ref | None]) -> Ref:
        if order.node.name == "bm25":
            raise StoreError("no space")
        return built(order, inputs)

    finished: list[str] = []
    results: list[run_nodes.Done] = []
    recorded = without_prefect(monkeypatch, build)
    run = run_of(store, dag, continues=continues)
    if not continues:
        with pytest.raises(StoreError):
            run_nodes.run_graph(run, lambda name, _: finished.append(name), results.append)
        assert (finished, results, recorded) == (["ingest", "tokenizer", "tokens"], [], {})
        return
    refs = run_nodes.run_graph(run, lambda name, _: finished.append(name), results.append)
    (done,) = results
    assert done.failed == {"bm25": "no space"}
    assert refs == done.refs == recorded
    assert "condenser" in refs
    assert not refs.keys() & {"bm25", "stage1", "evaluate", "report"}
    assert finished == [*refs]


def test_a_check_that_fails_because_of_damage_reports_the_damage(
    store: Store, dag: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise InputError("the collection has no training questions")

    monkeypatch.setattr(run_nodes.early_checks, "check", refuse)
    refs = {"ingest": build(store, "ingest")}
    with pytest.raises(InputError):
        run_nodes.check_later_nodes("ingest", refs, dag)
    flip(refs["ingest"])
    with pytest.raises(Damaged):
        run_nodes.check_later_nodes("ingest", refs, dag)


def test_final_nodes_and_nodes_with_figures_or_pages_are_checked(dag: list[Node]) -> None:
    checked = run_nodes.nodes_to_check(dag)
    assert {"evaluate", "report", "mine"} <= {*checked}
    assert not {"ingest", "tokens", "stage1", "bm25"} & {*checked}
    assert run_nodes.nodes_to_check(dag[:1]) == ["ingest"]
