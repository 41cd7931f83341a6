"""What a run can know to fail, before anything heavy is even imported."""

from collections.abc import Iterable

from artifacts.store import Store
from flows.dag import Node
from flows.plan import plan
from flows.selection import up_to
from pipeline.errors import InputError
from tasks.keys import sources_of
from tasks.stages import STAGES

SECTIONS = {"ingest-pretraining": "pretraining"}
FIELDS = {"miner.checkpoint": "rounds.mined_from"}
"""Of nodes whose configuration is no section of a recipe."""


def check(store: Store, dag: Iterable[Node], wanted: Iterable[Node]) -> None:
    """Raises InputError with the paths that are absent and the commands that would bring them, a line each.

    What the store already holds need not be brought.
    """
    dag = list(dag)
    absent = {node.name: lines for node in wanted if (lines := missing(node))}
    lines = [line for name in absent for line in absent[name] if not _held(store, dag, name)]
    if lines:
        raise InputError("\n".join(dict.fromkeys(lines)))


def missing(node: Node) -> list[str]:
    """What the node reads from outside the store and cannot have, a line each."""
    ask = STAGES[node.stage].missing
    said = ask(node.config) if ask else []
    if said and node.stage == "ingest":
        # A reader does not know which section of the recipe it serves.
        return [line.replace("ingest.", f"{SECTIONS.get(node.name, node.name)}.") for line in said]
    absent = [(name, path) for name, path in sources_of(node.stage, node.config).items() if not path.exists()]
    untold = [(f"{node.name}.{name}", path) for name, path in absent if not any(str(path) in line for line in said)]
    return said + [f"{FIELDS.get(field, field)}: {path}: no such file or folder" for field, path in untold]


def _held(store: Store, dag: list[Node], name: str) -> bool:
    return plan(store, up_to(dag, name))[-1].action == "reuse"
