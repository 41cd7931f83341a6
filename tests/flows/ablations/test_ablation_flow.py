"""The checks of an ablation's flow, and what it does when a part fails."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from searched import write_collection
from unscheduled import built, run_of, without_prefect

from artifacts.errors import StoreError
from artifacts.records import Ref
from artifacts.store import Store
from flows.ablations import flow
from flows.ablations.file import load
from flows.ablations.flow import check_measures, check_sizes, failures, leave_out
from flows.ablations.shared_nodes import Needs, SharedNodes, merge_cells
from flows.graph import run_nodes
from flows.graph.run_nodes import Done
from pipeline.errors import InputError
from tasks.node import Node, Order


def needs(size: int) -> list[Needs]:
    tiny = load("tiny").model_copy(update={"sizes": [size]})
    return merge_cells(tiny, [*tiny.rows]).needs


def test_sizes_are_compared_with_questions_not_with_judgements(tmp_path: Path) -> None:
    judged = [("train", "q0", "p0", 1), ("train", "q0", "p1", 1), ("train", "q1", "p0", 1), ("train", "q2", "p0", 0)]
    questions = [(name, "train", "question") for name in ("q0", "q1", "q2")]
    passages = [(f"p{n}", f"p{n}", "", "text") for n in range(2)]
    folder = write_collection(tmp_path / "collection", passages, questions, judged)
    ingest = Ref("ingest", "key", "digest", "digest", folder, {"train_relevant": 3})
    check_sizes(ingest, needs(2))
    with pytest.raises(InputError, match="sizes: 3 training questions, but the collection has 2;"):
        check_sizes(ingest, needs(3))


def test_measures_that_fit_no_question_are_reported_before_training(tmp_path: Path) -> None:
    judged = [("dev", "q0", "p0", 1)]
    folder = write_collection(tmp_path / "collection", [("p0", "p0", "", "text")], [("q0", "dev", "question")], judged)
    ingest = Ref("ingest", "key", "digest", "digest", folder, {})

    def check(*measures: str) -> None:
        check_measures(ingest, measures, relevance=1)

    check("RR@10", "hits@20")
    with pytest.raises(InputError, match=r"^measures: hits@20, hits@5, but no dev or test question has answers$"):
        check("hits@20", "hits@5")


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> SharedNodes:
    """Two rows. Their artifacts are not checked."""
    monkeypatch.setattr(flow, "get_run_logger", lambda: logging.getLogger("ablation"))
    monkeypatch.setattr(run_nodes, "check_later_nodes", lambda *_: None)
    monkeypatch.setattr(flow, "training_questions", lambda _: 9)
    monkeypatch.setattr(flow, "check_measures", lambda *_: None)
    tiny = load("tiny")
    return merge_cells(tiny, [*tiny.rows])


def run_without_tasks(cells: SharedNodes, folder: Path) -> tuple[dict[str, Ref], dict[str, str]]:
    """The artifacts of an ablation and its failures. No Prefect task runs."""
    done: list[Done] = []
    run_nodes.run_graph(run_of(Store(folder), cells.nodes, continues=True), partial(leave_out, cells), done.append)
    return done[0].refs, done[0].failed


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), InputError("no"), StoreError("no"), OSError("no"), KeyError("a")]
)
def test_a_failure_in_a_cell_does_not_stop_the_others(
    cells: SharedNodes, error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(order: Order, inputs: Mapping[str, Ref | None]) -> Ref:
        if order.node.name == "stage1 (initialisation only)":
            raise error
        return built(order, inputs)

    without_prefect(monkeypatch, build)
    refs, failed = run_without_tasks(cells, tmp_path)
    assert failed.keys() == {"stage1 (initialisation only)"}
    assert "evaluate (coCondenser)" in refs
    assert not [name for name in refs if "stage1 (initialisation" in name or name == "ablation"]
    assert "1 of 2 cells are measured" in failures(cells, refs, failed)


def test_a_row_that_does_not_fit_does_not_stop_the_others(
    cells: SharedNodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unfit(name: str, refs: Mapping[str, Ref], new: list[Node]) -> None:
        if name == "initial" and any(node.name == "cocondenser" for node in new):
            raise InputError("too long")

    monkeypatch.setattr(run_nodes, "check_later_nodes", unfit)
    without_prefect(monkeypatch)
    refs, failed = run_without_tasks(cells, tmp_path)
    assert failed == {"row coCondenser": "too long"}
    assert "evaluate (initialisation only)" in refs
    assert not refs.keys() & {"condenser", "cocondenser", "evaluate (coCondenser)", "ablation"}


def test_a_row_that_does_not_fit_the_collection_is_reported_before_any_training(
    cells: SharedNodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unfit(name: str, *_: object) -> None:
        if name == "ingest":
            raise InputError("no negatives")

    monkeypatch.setattr(run_nodes, "check_later_nodes", unfit)
    recorded = without_prefect(monkeypatch)
    with pytest.raises(InputError, match=r"^row initialisation only: no negatives$"):
        run_without_tasks(cells, tmp_path)
    assert recorded.keys() == {"ingest"}
