"""Which run in the store answers questions: the newest, by what was best on its dev questions unless told."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from artifacts.runs import Run, readable_runs, runs
from artifacts.store import Store
from flows.graph.run_schema import read_metrics, recipe_of
from flows.recipes import yaml_layers
from pipeline.bm25.settings import read_settings
from pipeline.data.stored import again
from pipeline.errors import InputError
from pipeline.evaluate.rows import FUSION
from pipeline.evaluate.short_tables import asked_first, not_tuned
from tasks.stages import STAGES

PRETRAINED = tuple(name for name in reversed(STAGES) if STAGES[name].pretrains)
"""Nodes that may hold the pre-trained model; the first that a run has does."""

By = Literal["dense", "fusion", "bm25"]


@dataclass(frozen=True)
class Engine:
    """The pieces of a run that answer questions."""

    run: Run
    metrics: dict[str, Any]
    wanted: By | None = None
    """What to ask; None: `tables.asked_first`."""

    @property
    def how(self) -> By:
        return self.wanted or ("dense" if self.instead else cast(By, asked_first(self.metrics)))

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The run's, with all that answering reads. Raises InputError where its record lacks that."""
        dense = () if self.metrics["dense"] is None else ("encoder", "search")
        both = ("bm25", "evaluate") if self.metrics["fusion"] and "bm25" in self.run.nodes else ()
        return recipe_of(self.run, *dense, *both)

    @cached_property
    def instead(self) -> bool:
        """Whether dense retrieval stands in for what was best on dev: a run file answers no question of its own."""
        bm25 = self.run.nodes.get("bm25")
        if self.wanted or self.metrics["winner_on_dev"] != "fusion" or bm25 is None or not bm25.path.exists():
            return False
        return _is_run_file(bm25.path)

    @cached_property
    def collection(self) -> Path:
        return self.run.nodes[self.part("ingest")].path

    def part(self, name: str) -> str:
        """The node that answers in the place of `name`: of the whole texts, where questions were cut out of them."""
        whole = f"{name.partition('-')[0]}-whole"
        return whole if whole in self.run.nodes else name

    @property
    def model(self) -> str:
        """The node that holds the model of the dense run."""
        dense = str(self.metrics["dense"])
        return next(name for name in PRETRAINED if name in self.run.nodes) if dense == "pretrained" else dense

    def ways(self) -> list[By]:
        """How the run can be asked, whatever was best on dev."""
        bm25 = self.run.nodes.get(self.part("bm25")) if "bm25" in self.run.nodes else None
        lexical = bm25 is not None and bm25.path.exists() and not _is_run_file(bm25.path)
        dense = self.metrics["dense"] is not None and replace(self, wanted="dense").is_there()
        ways: dict[By, bool] = {"fusion": lexical and dense and bool(self.metrics["fusion"]), "dense": dense}
        return [way for way, can in {**ways, "bm25": lexical}.items() if can]

    def label(self, by: By) -> str:
        """What is asked, such as `dense + BM25`."""
        first = self.metrics["labels"]["bm25"]
        return {"fusion": f"dense + {first}", "bm25": first}.get(by, by)

    def not_tuned(self, by: By) -> str | None:
        """Why nothing has chosen how this way of asking joins its lists; None where dev chose it, or it joins none."""
        return not_tuned(self.metrics, FUSION) if by == "fusion" else None

    def needed(self) -> list[str]:
        dense = self.metrics["dense"]
        nodes = [] if self.how == "bm25" else [self.model, self.part(f"index-{dense}")]
        return [self.part("ingest"), *nodes, *([] if self.how == "dense" else [self.part("bm25")])]

    def is_there(self) -> bool:
        """Whether the store still holds all that answers."""
        return all(node in self.run.nodes and self.run.nodes[node].path.exists() for node in self.needed())

    def lost(self) -> list[str]:
        """Nodes whose artifacts answered once and are gone; none where the run never had all that answers."""
        needed = self.needed()
        if not all(node in self.run.nodes for node in needed):
            return []
        return [node for node in needed if not self.run.nodes[node].path.exists()]


def check_whole(run: Run, node: str) -> None:
    """Raises InputError that names the file where an artifact of a run is not as it was written.

    A process hashes an artifact once.
    """
    ref = run.nodes[node]
    store = Store.of(ref)
    problem = store.whole(ref.digest)
    if problem:
        raise InputError(f"{store.root}: {node} (objects/{ref.digest[:12]}): {problem}; {again(run.name)}")


def _is_run_file(bm25: Path) -> bool:
    """Whether a first stage came as one. Not of damaged settings, of which opening it will tell."""
    try:
        return bool(read_settings(bm25)["scores"] == "run")
    except InputError:
        return False


def newest_engine(store: Store, recipe: str | None, by: By | None = None) -> Engine:
    """Of the newest run (of a recipe) that was evaluated and whose artifacts are still there, to be asked by `by`."""
    for engine in engines(store, recipe, by):
        if engine.how == "fusion" and not engine.metrics["fusion"]:
            raise InputError(f"--by fusion: the run of {engine.run.name} joined no dense run with BM25")
        if engine.how == "dense" and engine.metrics["dense"] is None:
            raise InputError(f"--by dense: the run of {engine.run.name} has no dense run")
        if engine.is_there():
            return engine
    raise none_finished(store, recipe, "search in", by)


def none_finished(store: Store, recipe: str | None, what: str, by: By | None = None) -> InputError:
    """That no run is there to `what`, such as `search in`, or what the newest has lost that was.

    Raises InputError for a recipe that is not known.
    """
    found = runs(store, recipe)
    if recipe and not found:
        yaml_layers.read(recipe)
    for run in found:
        lost = _lost(run, by)
        if lost:
            makes = f"`cocondenser run {run.name}` builds {'it' if len(lost) == 1 else 'them'} again"
            return InputError(f"{store.root}: the run of {run.name} has lost {', '.join(lost)}; {makes}")
    of = f" of {recipe}" if recipe else ""
    return InputError(
        f"{store.root}: no finished run{of} to {what}; `cocondenser run {recipe or 'pydocs-small'}` makes one"
    )


def _lost(run: Run, by: By | None) -> list[str]:
    if "evaluate" not in run.nodes:
        return []
    if not run.nodes["evaluate"].path.exists():
        return ["evaluate"]
    return Engine(run, read_metrics(run.nodes) or {}, by).lost()


def engines(store: Store, recipe: str | None, by: By | None = None) -> Iterator[Engine]:
    """Of all runs (of a recipe) that were evaluated, newest first. Raises InputError or StoreError at a damaged one."""
    for run in readable_runs(store, recipe):
        if "evaluate" in run.nodes and run.nodes["evaluate"].path.exists():
            yield Engine(run, read_metrics(run.nodes) or {}, by)
