"""Plans an ablation row by row: what it would build, and what rows share."""

from collections.abc import Sequence
from dataclasses import dataclass

from artifacts.store import Store
from flows.ablations.shared_nodes import SharedNodes
from flows.graph.plan import Step, plan


@dataclass(frozen=True)
class RowPlan:
    """Stages of a row; `stages` is the sum of the other three."""

    row: str
    cells: int
    stages: int
    """If each cell ran alone in an empty store."""
    shared: int
    """Built once for an earlier cell, of this row or one before it."""
    reused: int
    """Of the rest, those in the store already."""
    to_build: int
    """The rest, at most. A stage that depends on one that is not built may be in the store already."""
    seconds: float | None
    """Estimate for the stages to build, from builds of the recipe in this store. None: there are none."""
    unknown: int
    """Stages without an estimate."""


def plan_rows(store: Store, cells: SharedNodes, recipe: str) -> tuple[list[RowPlan], list[Step]]:
    """Returns the plan of each row, with the table last, and the steps of all parts."""
    steps = {step.node: step for step in plan(store, cells.nodes, recipe)}
    counted: set[str] = set()
    rows = []
    for row, needs in cells.by_row().items():
        names = [name for one in needs for name in one.parts.values()]
        first = [name for name in dict.fromkeys(names) if name not in counted]
        counted |= {*first}
        rows.append(_row(row, len(needs), len(names), [steps[name] for name in first]))
    table = cells.parts[-1].node.name
    rows.append(_row("table", 0, 1, [steps[table]]))
    return rows, list(steps.values())


def total(rows: Sequence[RowPlan]) -> RowPlan:
    known = [row.seconds for row in rows if row.seconds is not None]
    counts = {name: sum(getattr(row, name) for row in rows) for name in COUNTS}
    return RowPlan("total", **counts, seconds=sum(known) if known else None)


COUNTS = ("cells", "stages", "shared", "reused", "to_build", "unknown")


def _row(row: str, cells: int, stages: int, first: Sequence[Step]) -> RowPlan:
    todo = [step for step in first if step.action != "reuse"]
    known = [step.seconds for step in todo if step.seconds is not None]
    seconds = sum(known) if known or not todo else None
    reused = len(first) - len(todo)
    return RowPlan(row, cells, stages, stages - len(first), reused, len(todo), seconds, len(todo) - len(known))
