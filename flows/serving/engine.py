"""Which run in the store answers questions, and how: by default the newest, by `short_tables.default_system`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from artifacts.runs import RunRecord, readable_runs, runs
from artifacts.store import Store
from flows.graph.run_schema import read_metrics, recipe_of
from flows.recipes import yaml_layers
from pipeline.bm25.settings import read_settings
from pipeline.data.stored import rebuild_advice
from pipeline.errors import InputError
from pipeline.evaluate.rows import FUSION
from pipeline.evaluate.tables.short_tables import default_system, fusion_of
from tasks.stages import STAGES

PRETRAINED = tuple(name for name in reversed(STAGES) if STAGES[name].pretrains)
"""Nodes that may hold the pre-trained model: the first of these that a run has."""

By = Literal["dense", "fusion", "bm25"]


@dataclass(frozen=True)
class Engine:
    """The parts of a run that answer questions."""

    run: RunRecord
    metrics: dict[str, Any]
    requested: By | None = None
    """The search method that the user requests; None: the one of `short_tables.default_system`."""

    @property
    def by(self) -> By:
        """The search method."""
        return self.requested or ("dense" if self.dense_instead else cast(By, default_system(self.metrics)))

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The run's recipe. Raises InputError if its record lacks a section that answering needs."""
        dense = () if self.metrics["dense"] is None else ("encoder", "search")
        both = ("bm25", "evaluate") if self.metrics["fusion"] and "bm25" in self.run.nodes else ()
        return recipe_of(self.run, *dense, *both)

    @cached_property
    def dense_instead(self) -> bool:
        """Whether dense retrieval replaces the fusion: a run file as first stage cannot answer new questions."""
        bm25 = self.run.nodes.get("bm25")
        if self.requested or default_system(self.metrics) != "fusion" or bm25 is None or not bm25.path.exists():
            return False
        return _is_run_file(bm25.path)

    @cached_property
    def collection(self) -> Path:
        return self.run.nodes[self.part("ingest")].path

    def part(self, name: str) -> str:
        """The node that answers for node `name`: that of the whole texts, if questions were cut out of the texts."""
        whole = f"{name.partition('-')[0]}-whole"
        return whole if whole in self.run.nodes else name

    @property
    def model(self) -> str:
        """The node that holds the model of the dense run."""
        dense = str(self.metrics["dense"])
        return next(name for name in PRETRAINED if name in self.run.nodes) if dense == "pretrained" else dense

    def ways(self) -> list[By]:
        """All search methods of the run, whichever answers by default."""
        bm25 = self.run.nodes.get(self.part("bm25")) if "bm25" in self.run.nodes else None
        has_bm25 = bm25 is not None and bm25.path.exists() and not _is_run_file(bm25.path)
        has_dense = self.metrics["dense"] is not None and replace(self, requested="dense").is_complete()
        has_fusion = has_bm25 and has_dense and bool(self.metrics["fusion"])
        ways: dict[By, bool] = {"fusion": has_fusion, "dense": has_dense, "bm25": has_bm25}
        return [way for way, available in ways.items() if available]

    def label(self, by: By) -> str:
        """The name of a search method in tables, such as `dense + BM25`."""
        first = self.metrics["labels"]["bm25"]
        return {"fusion": f"dense + {first}", "bm25": first}.get(by, by)

    def fusion(self, by: By) -> dict[str, Any] | None:
        """Method and weight of the fusion, and why (None in older evaluations). None for another search method."""
        chosen = fusion_of(self.metrics, FUSION) if by == "fusion" else None
        return None if chosen is None else {name: chosen.get(name) for name in ("method", "weight", "why")}

    def needed_nodes(self) -> list[str]:
        """The nodes whose artifacts answer questions."""
        dense = self.metrics["dense"]
        nodes = [] if self.by == "bm25" else [self.model, self.part(f"index-{dense}")]
        return [self.part("ingest"), *nodes, *([] if self.by == "dense" else [self.part("bm25")])]

    def is_complete(self) -> bool:
        """Whether the store still has all artifacts that answer questions."""
        return all(node in self.run.nodes and self.run.nodes[node].path.exists() for node in self.needed_nodes())

    def lost_nodes(self) -> list[str]:
        """Nodes whose artifacts are no longer in the store. Empty if the run never had all needed nodes."""
        needed = self.needed_nodes()
        if not all(node in self.run.nodes for node in needed):
            return []
        return [node for node in needed if not self.run.nodes[node].path.exists()]


def check_whole(run: RunRecord, node: str) -> None:
    """Raises InputError, naming the file, if an artifact of a run has changed since it was written.

    A process hashes each artifact once.
    """
    ref = run.nodes[node]
    store = Store.of(ref)
    problem = store.whole(ref.digest)
    if problem:
        raise InputError(f"{store.root}: {node} (objects/{ref.digest[:12]}): {problem}; {rebuild_advice(run.name)}")


def _is_run_file(bm25: Path) -> bool:
    """Whether the first stage is a run file. False for damaged settings: opening the artifact reports those."""
    try:
        return bool(read_settings(bm25)["scores"] == "run")
    except InputError:
        return False


def newest_engine(store: Store, recipe: str | None, by: By | None = None) -> Engine:
    """The engine of the newest evaluated run (of a recipe) whose artifacts are still in the store."""
    for engine in evaluated_engines(store, recipe, by):
        if engine.by == "fusion" and not engine.metrics["fusion"]:
            raise InputError(f"--by fusion: the run of {engine.run.name} has no fusion of dense retrieval and BM25")
        if engine.by == "dense" and engine.metrics["dense"] is None:
            raise InputError(f"--by dense: the run of {engine.run.name} has no dense retrieval")
        if engine.is_complete():
            return engine
    raise no_finished_run(store, recipe, "search in", by)


def no_finished_run(store: Store, recipe: str | None, what: str, by: By | None = None) -> InputError:
    """The error that no run is there to `what`, such as `search in`, or that artifacts of the newest run are missing.

    Raises InputError for an unknown recipe.
    """
    all_runs = runs(store, recipe)
    if recipe and not all_runs:
        yaml_layers.read(recipe)
    for run in all_runs:
        lost = _lost_nodes(run, by)
        if lost:
            advice = f"`cocondenser run {run.name}` builds {'it' if len(lost) == 1 else 'them'} again"
            return InputError(f"{store.root}: the run of {run.name} has lost {', '.join(lost)}; {advice}")
    of = f" of {recipe}" if recipe else ""
    return InputError(
        f"{store.root}: no finished run{of} to {what}; `cocondenser run {recipe or 'pydocs-small'}` makes one"
    )


def _lost_nodes(run: RunRecord, by: By | None) -> list[str]:
    if "evaluate" not in run.nodes:
        return []
    if not run.nodes["evaluate"].path.exists():
        return ["evaluate"]
    return Engine(run, read_metrics(run.nodes) or {}, by).lost_nodes()


def evaluated_engines(store: Store, recipe: str | None, by: By | None = None) -> Iterator[Engine]:
    """The engines of all evaluated runs (of a recipe), newest first. Raises InputError or StoreError for damage."""
    for run in readable_runs(store, recipe):
        if "evaluate" in run.nodes and run.nodes["evaluate"].path.exists():
            yield Engine(run, read_metrics(run.nodes) or {}, by)
