"""Merges the nodes of all cells of an ablation; a node that cells share appears once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from flows.ablations.ablation import Ablation, Cell, cells, size_text
from flows.dag import nodes
from flows.graph.selection import up_to
from flows.recipes.command_line import command
from flows.recipes.recipe import Recipe
from pipeline.ablation.config import UNTUNED, AblationConfig, CellConfig, Negatives
from pipeline.ablation.data import Place
from pipeline.errors import InputError
from pipeline.evaluate.rows import FUSION
from tasks.node import Node


@dataclass
class Part:
    """A node that is built once."""

    node: Node
    """Its inputs are nodes of parts. Its name has the first cell if not all cells read it."""
    recipe: Recipe
    """Of the first cell that reads it."""
    places: list[Place]
    """The cells that read it. Nodes that a row takes from another row count as that row's."""


@dataclass
class Needs:
    """The nodes that a cell would need if it ran alone."""

    cell: Cell
    parts: dict[str, str] = field(default_factory=dict)
    """Node of the cell -> part. A node of the row that it starts from is called `condenser (Condenser)`, for example,
    if the cell has its own condenser."""
    new: list[Node] = field(default_factory=list)
    """Its nodes that no earlier cell reads, as in a run of its recipe."""


@dataclass(frozen=True)
class SharedNodes:
    parts: list[Part]
    """Each after its inputs, cell by cell; the table is the last."""
    needs: list[Needs]
    """One for each cell, in order."""

    @property
    def nodes(self) -> list[Node]:
        return [part.node for part in self.parts]

    def by_row(self) -> dict[str, list[Needs]]:
        rows: dict[str, list[Needs]] = {}
        for one in self.needs:
            rows.setdefault(one.cell.row, []).append(one)
        return rows


def merge_cells(ablation: Ablation, rows: Sequence[str]) -> SharedNodes:
    """The parts of these rows, and the table. Raises InputError if a row does not fit the recipe."""
    found: dict[str, Part] = {}
    needs = [Needs(cell) for cell in cells(ablation, rows)]
    dags = [cell_nodes(ablation, one.cell) for one in needs]
    known: dict[int, str] = {}  # of objects that `dags` keeps alive
    parts_of: list[dict[str, str]] = []
    for one, dag in zip(needs, dags, strict=True):
        own = {node.name for row, node in dag if row == one.cell.row}
        parts_of.append({})
        for row, node in dag:
            identity, mine = _identity(node, known), row == one.cell.row
            if identity not in found:
                found[identity] = Part(node, one.cell.recipe, [])
                one.new.append(node)
            found[identity].places.append((row, one.cell.size, one.cell.seed))
            parts_of[-1][node.name if mine or node.name not in own else f"{node.name} ({row})"] = identity
    names = _names(found)
    for identity, part in found.items():
        inputs = {name: given and found[_identity(given, known)].node for name, given in part.node.inputs.items()}
        part.node = replace(part.node, name=names[identity], inputs=inputs)
    for one, own_parts in zip(needs, parts_of, strict=True):
        one.parts = {name: names[identity] for name, identity in own_parts.items()}
    parts = [*found.values()]
    table = _table(ablation, needs, {part.node.name: part.node for part in parts})
    return SharedNodes([*parts, Part(table, ablation.recipe, [])], needs)


def cell_nodes(ablation: Ablation, cell: Cell) -> list[tuple[str, Node]]:
    """(row, node) of all nodes that a cell's evaluation needs; those of the row that it starts from come first.

    There is no report. `cocondenser run` with the cell's settings writes it; without `start` from the same artifacts.
    """
    dag = nodes(cell.recipe)
    ends = ["evaluate"]
    if is_drawn(ablation, cell) and any(node.name == "attention" for node in dag):
        ends.append("attention")
    wanted = {node.name for name in ends for node in up_to(dag, name)}
    dag = [node for node in dag if node.name in wanted]
    start = ablation.rows[cell.row].start
    if start is None:
        return [(cell.row, node) for node in dag]
    (other,) = (one for one in cells(ablation, [start]) if (one.size, one.seed) == (cell.size, cell.seed))
    before = cell_nodes(ablation, other)
    given = _pretrained([node for row, node in before if row == start])
    if given.name == "initial":
        raise InputError(f"row {cell.row}: start: {start} has no pre-trained model to start from")
    taken = _upstream(given)
    made = {"initial": given}
    for node in dag:
        if node.name != "initial":
            inputs = {name: source and made[source.name] for name, source in node.inputs.items()}
            made[node.name] = replace(node, inputs=inputs)
    earlier = [(row, node) for row, node in before if id(node) in taken]
    # These nodes come before the initial model: the checks after it read them, and so they run before any training.
    first = set().union(*(_upstream(node) for node in made.values() if node.stage == "tokens"))
    own = [(cell.row, node) for name, node in made.items() if name != "initial"]
    return [*(one for one in own if id(one[1]) in first), *earlier, *(one for one in own if id(one[1]) not in first)]


def is_drawn(ablation: Ablation, cell: Cell) -> bool:
    """Whether the curves and the model before fine-tuning are shown: only for the last size and the first seed."""
    return (cell.size, cell.seed) == (ablation.sizes[-1], ablation.seeds[0])


def _pretrained(dag: Sequence[Node]) -> Node:
    """The model that fine-tuning starts from."""
    start = next(node for node in dag if node.name == "stage1").inputs["start"]
    assert start is not None
    return start


def _upstream(node: Node) -> set[int]:
    return {id(node)}.union(*(_upstream(given) for given in node.inputs.values() if given is not None))


def _identity(node: Node, known: dict[int, str]) -> str:
    """A digest of the parts of the node's key, and of its paths. `known`: by `id`."""
    if id(node) not in known:
        parts = {
            "stage": node.stage,
            "config": node.config.model_dump(mode="json"),
            "shared": {name: section.model_dump(mode="json") for name, section in node.shared.items()},
            "inputs": {name: given and _identity(given, known) for name, given in node.inputs.items()},
        }
        known[id(node)] = sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return known[id(node)]


def _names(found: Mapping[str, Part]) -> dict[str, str]:
    """{identity: name}: the node's name, with row, size and seed of its first cell if they distinguish it from others.

    `evaluate` always names its row: a record of a run with a node `evaluate` would answer searches.
    """
    everywhere = [{place[n] for part in found.values() for place in part.places} for n in range(3)]
    names: dict[str, str] = {}
    for identity, part in found.items():
        same = [other for other in found.values() if other.node.name == part.node.name]
        varies = [{place[n] for place in part.places} != everywhere[n] for n in range(3)]
        if len(same) == 1:
            varies = [False] * 3
        varies[0] = varies[0] or part.node.name == "evaluate"
        name = _named(part, varies)
        if name in names.values():
            name = _named(part, [True] * 3)
        names[identity] = name
    return names


def _named(part: Part, shown: Sequence[bool]) -> str:
    row, size, seed = part.places[0]
    words = [
        word for word, show in zip((row, f"{size_text(size)} questions", f"seed {seed}"), shown, strict=True) if show
    ]
    return f"{part.node.name} ({', '.join(words)})" if words else part.node.name


def _table(ablation: Ablation, needs: Sequence[Needs], made: Mapping[str, Node]) -> Node:
    """The node that reads the evaluations of all cells, and the trainings of one size and seed for the curves."""
    inputs: dict[str, Node | None] = {"collection": made[needs[0].parts["ingest"]]}
    for n, one in enumerate(needs):
        nodes_read = ["evaluate"]
        if is_drawn(ablation, one.cell):
            nodes_read += [name for name in ("stage1", "attention") if name in one.parts]
        inputs |= {f"{name}_{n}": made[one.parts[name]] for name in nodes_read}
    config = AblationConfig(
        title=ablation.title,
        reference=ablation.reference,
        measures=ablation.measures,
        test=ablation.test,
        samples=ablation.samples,
        seed=ablation.test_seed,
        cells=[
            CellConfig(
                row=one.cell.row,
                size=one.cell.size,
                seed=one.cell.seed,
                systems=_systems(ablation, one.cell, made[one.parts["evaluate"]]),
                epochs=one.cell.recipe.stage1.epochs,
                command=command(one.cell.recipe),
                start=ablation.rows[one.cell.row].start,
            )
            for one in needs
        ],
    )
    return Node("ablation", "ablation", config, inputs)


def _systems(ablation: Ablation, cell: Cell, evaluate: Node) -> dict[Negatives, str]:
    """The runs of a cell that its table shows; learning to rank has none, and so no fusion with BM25."""
    mined = [name for name in evaluate.inputs if name.startswith("stage2")]
    tuned: dict[Negatives, str] = {"bm25": "stage1"} if "stage1" in evaluate.inputs else {}
    tuned |= {"mined": mined[-1]} if mined else {}
    runs: dict[Negatives, str] = {UNTUNED: "pretrained"} if is_drawn(ablation, cell) else {}
    runs |= tuned | ({"fusion": FUSION} if tuned else {})
    return {kind: name for kind, name in runs.items() if kind in ablation.negatives}
