"""What a run can know to fail, before anything heavy is even imported."""

import re
from collections.abc import Iterable

from artifacts.store import Store
from flows.dag import Node
from flows.plan import plan
from flows.selection import up_to
from pipeline.errors import InputError
from tasks.keys import sources_of
from tasks.stages import STAGES

SECTIONS = {"ingest-pretraining": "pretraining", "ingest-whole": "ingest"}
FIELDS = {
    "cross-encoder.checkpoint": "cross_encoder.checkpoint",
    "miner.checkpoint": "rounds.mined_from",
    "model.checkpoint": "model",
}
"""Where a recipe holds them otherwise than as NODE.FIELD."""


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
        # A reader does not know which section of the recipe it serves; a path may hold the same letters.
        field = re.compile(rf"(?<![\w./\\-])ingest\.(?=({'|'.join(type(node.config).model_fields)})\b)")
        return [field.sub(f"{SECTIONS.get(node.name, node.name)}.", line) for line in said]
    absent = [(name, path) for name, path in sources_of(node.stage, node.config).items() if not path.exists()]
    untold = [(name, path) for name, path in absent if not any(str(path) in line for line in said)]
    if node.stage == "adopt":
        said = [line.replace("adopt.checkpoint", _in_recipe(node, "checkpoint"), 1) for line in said]
    return said + [f"{_in_recipe(node, name)}: {path}: no such file or folder" for name, path in untold]


def _in_recipe(node: Node, field: str) -> str:
    """The recipe's name of a field of the node's configuration."""
    name = f"{node.name.removesuffix('-whole')}.{field}"
    return FIELDS.get(name, name)


def _held(store: Store, dag: list[Node], name: str) -> bool:
    return plan(store, up_to(dag, name))[-1].action == "reuse"
