"""Runs of the store that were evaluated, and what they go by."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.runs import Run, runs
from artifacts.store import Store
from flows.graph.run_schema import read_metrics
from flows.recipes.yaml_layers import hint, named
from flows.serving.engine import check_whole
from pipeline.errors import InputError
from pipeline.evaluate.short_tables import asked_first, on_dev, shallow_notes
from pipeline.paths import given

SHOWN = 8
"""Characters of an id."""
SHORTEST = 4
"""Characters of an id that name its run: fewer fit many a word, such as a recipe's name misspelt."""


@dataclass(frozen=True)
class Measured:
    """A run that was evaluated."""

    run: Run
    metrics: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The start of its evaluation's digest. Runs with equal figures have the same."""
        return self.run.nodes["evaluate"].digest[:SHOWN]

    @property
    def name(self) -> str:
        """Recipe and id."""
        return f"{self.run.name} {self.id}"

    @property
    def folder(self) -> Path:
        """The artifact of stage `evaluate`."""
        return self.run.nodes["evaluate"].path

    @property
    def best(self) -> str:
        """The system that was best on dev; without dev what answers questions (`tables.asked_first`)."""
        winner = asked_first(self.metrics)
        return str(self.metrics["dense"]) if winner == "dense" else winner

    @property
    def on_dev(self) -> bool:
        """Whether there is a best one on dev."""
        return on_dev(self.metrics)

    def label(self, system: str) -> str:
        """What tables call it."""
        return str(self.metrics["labels"].get(system, system))

    def systems(self, split: str) -> dict[str, dict[str, Mapping[str, float]]]:
        """{system: {measure: {mean, low, high}}}, by judgements and by answers."""
        part = self.metrics["splits"].get(split, {"systems": {}})
        found: dict[str, dict[str, Mapping[str, float]]] = {}
        for systems in (part["systems"], part.get("answers", {}).get("systems", {})):
            for name, figures in systems.items():
                found.setdefault(name, {}).update(figures)
        return found

    def shallow(self, split: str, measures: Iterable[str], systems: Iterable[str]) -> list[str]:
        """What to know of measures that look deeper than a list goes; a line a system."""
        return shallow_notes(self.metrics, split, measures, systems)

    def measured_by(self, split: str, measure: str) -> list[str]:
        """The systems with a figure of this measure."""
        return [name for name, figures in self.systems(split).items() if measure in figures]


def measured(run: Run) -> Measured | None:
    """None where the run has no evaluation. Raises InputError where it is damaged or gone."""
    metrics = read_metrics(run.nodes, "labels", "splits", "config")
    return None if metrics is None else Measured(run, metrics)


def found(store: Store, which: str) -> Measured:
    """The newest run of the recipe `which`, or the one with this id (or its start) or this report.html.

    Raises InputError where there is none, where the start is too short or that of several, and where the
    measures are gone.
    """
    if not which.strip():
        raise InputError(
            f"{which!r} names no run: give a recipe, an id that `cocondenser runs` shows, or a report.html"
        )
    evaluated = [run for run in runs(store) if "evaluate" in run.nodes]
    of_recipe = [run for run in evaluated if run.name == which]
    if of_recipe:
        return _measures(of_recipe[0])
    if Path(which).name == "report.html":
        digest = given(which).resolve().parent.name
        matching = [run for run in evaluated if "report" in run.nodes and run.nodes["report"].digest == digest]
    else:
        matching = [run for run in evaluated if run.nodes["evaluate"].digest.startswith(which)]
        if matching and len(which) < SHORTEST:
            raise InputError(
                f"{store.root}: {which!r} is too short for an id: give {SHORTEST} characters or more of it"
            )
    digests = {run.nodes["evaluate"].digest for run in matching}
    if len(digests) > 1:
        raise InputError(f"{store.root}: {len(digests)} runs have ids that begin with {which!r}; give more of it")
    if matching:
        return _measures(matching[0])
    if which in named():
        raise InputError(f"{store.root}: no measured run of {which}; `cocondenser run {which}` makes one")
    if os.path.isfile(given(which)):  # Path.is_file() fails at a name that is too long
        raise InputError(
            f"{which}: there, but no report of the store {store.root}: give the path of a report within it, or an id "
            "that `cocondenser runs` shows"
        )
    known = sorted({run.name for run in evaluated})
    raise InputError(f"{store.root}: no measured run {which!r}{hint(which, known)}; `cocondenser runs` lists them")


def found_run(store: Store, which: str) -> Run:
    """As `found`; of a recipe none of whose runs was evaluated the newest."""
    of_recipe = runs(store, which)
    if of_recipe and not any("evaluate" in run.nodes for run in of_recipe):
        return of_recipe[0]
    return found(store, which).run


def _measures(run: Run) -> Measured:
    one = measured(run)
    assert one is not None
    check_whole(run, "evaluate")
    return one
