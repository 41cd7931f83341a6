"""Evaluated runs of the store, and how a user names them."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.runs import RunRecord, runs
from artifacts.store import Store
from flows.graph.run_schema import read_metrics
from flows.recipes.yaml_layers import hint, named
from flows.serving.engine import check_whole
from pipeline.errors import InputError
from pipeline.evaluate.tables.short_tables import default_system, on_dev, shallow_notes
from pipeline.paths import expand_home

ID_LENGTH = 8
"""Characters of an id."""
SHORTEST = 4
"""Minimum characters of an id: shorter ones could be a misspelt name of a recipe."""


@dataclass(frozen=True)
class EvaluatedRun:
    run: RunRecord
    metrics: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The start of its evaluation's digest. Runs with equal figures have the same."""
        return self.run.nodes["evaluate"].digest[:ID_LENGTH]

    @property
    def name(self) -> str:
        """Recipe and id."""
        return f"{self.run.name} {self.id}"

    @property
    def folder(self) -> Path:
        """The artifact of stage `evaluate`."""
        return self.run.nodes["evaluate"].path

    @property
    def answering(self) -> str:
        """The system that answers questions (`short_tables.default_system`)."""
        system = default_system(self.metrics)
        return str(self.metrics["dense"]) if system == "dense" else system

    @property
    def on_dev(self) -> bool:
        """Whether there are dev questions."""
        return on_dev(self.metrics)

    def label(self, system: str) -> str:
        """The name of a system in tables."""
        return str(self.metrics["labels"].get(system, system))

    def systems(self, split: str) -> dict[str, dict[str, Mapping[str, float]]]:
        """{system: {measure: {mean, low, high}}}, with the measures by judgements and by answers."""
        part = self.metrics["splits"].get(split, {"systems": {}})
        by_system: dict[str, dict[str, Mapping[str, float]]] = {}
        for systems in (part["systems"], part.get("answers", {}).get("systems", {})):
            for name, figures in systems.items():
                by_system.setdefault(name, {}).update(figures)
        return by_system

    def shallow(self, split: str, measures: Iterable[str], systems: Iterable[str]) -> list[str]:
        """Notes on measures that need longer lists than a system has; one line per system."""
        return shallow_notes(self.metrics, split, measures, systems)

    def measured_by(self, split: str, measure: str) -> list[str]:
        """The systems that have this measure."""
        return [name for name, figures in self.systems(split).items() if measure in figures]


def read_evaluated(run: RunRecord) -> EvaluatedRun | None:
    """None if the run has no evaluation. Raises InputError if the evaluation is damaged or missing."""
    metrics = read_metrics(run.nodes, "labels", "splits", "config")
    return None if metrics is None else EvaluatedRun(run, metrics)


def find_evaluated(store: Store, which: str) -> EvaluatedRun:
    """The newest run of the recipe `which`, or the run with this id (or its start) or this report.html.

    Raises InputError if there is no such run, if the start of an id is too short or belongs to several runs, and if
    the measures are missing.
    """
    if not which.strip():
        raise InputError(f"{which!r} names no run: use a recipe, an id that `cocondenser runs` shows, or a report.html")
    evaluated = [run for run in runs(store) if "evaluate" in run.nodes]
    of_recipe = [run for run in evaluated if run.name == which]
    if of_recipe:
        return _read_checked(of_recipe[0])
    if Path(which).name == "report.html":
        digest = expand_home(which).resolve().parent.name
        matching = [run for run in evaluated if "report" in run.nodes and run.nodes["report"].digest == digest]
    else:
        matching = [run for run in evaluated if run.nodes["evaluate"].digest.startswith(which)]
        if matching and len(which) < SHORTEST:
            raise InputError(f"{store.root}: {which!r} is too short for an id: use at least {SHORTEST} characters")
    digests = {run.nodes["evaluate"].digest for run in matching}
    if len(digests) > 1:
        raise InputError(f"{store.root}: {len(digests)} runs have ids that begin with {which!r}; use more characters")
    if matching:
        return _read_checked(matching[0])
    if which in named():
        raise InputError(f"{store.root}: no measured run of {which}; `cocondenser run {which}` makes one")
    if os.path.isfile(expand_home(which)):  # Path.is_file() raises an error for a name that is too long
        raise InputError(
            f"{which}: no report of the store {store.root}: use the path of a report in this store, or an id that "
            "`cocondenser runs` shows"
        )
    known = sorted({run.name for run in evaluated})
    raise InputError(f"{store.root}: no measured run {which!r}{hint(which, known)}; `cocondenser runs` lists them")


def find_run(store: Store, which: str) -> RunRecord:
    """As `find_evaluated`, but also the newest run of a recipe that has no evaluated run."""
    of_recipe = runs(store, which)
    if of_recipe and not any("evaluate" in run.nodes for run in of_recipe):
        return of_recipe[0]
    return find_evaluated(store, which).run


def _read_checked(run: RunRecord) -> EvaluatedRun:
    evaluated = read_evaluated(run)
    assert evaluated is not None
    check_whole(run, "evaluate")
    return evaluated
