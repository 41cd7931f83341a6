"""Reports later failures as soon as the first artifacts exist, and not after days of pre-training.

The checks are those of the stages (`Stage.checks`).
"""

from collections.abc import Iterable, Mapping

from artifacts.records import Ref
from pipeline.advice import Unfit, raise_together
from pipeline.errors import InputError
from pipeline.runtime.planned import Planned
from tasks.node import Node
from tasks.stages import OTHER, STAGES, Check

REPLACED = {"ingest": "generate", "tokens": "tokens-generate"}
"""{node: the node that trainings read instead, if a language model writes questions}."""


def check(name: str, refs: Mapping[str, Ref], wanted: Iterable[Node]) -> None:
    """Runs the checks of all `wanted` nodes that read the artifact of node `name`; `AT_START`: those before the run.

    Raises one InputError with all problems, in the order of the nodes, up to the first error that is no `Unfit`.
    """
    known: dict[int, Planned] = {}
    problems: dict[str, InputError] = {}
    for node in wanted:
        if (early := check_after(node, name)) is None:
            continue
        try:
            for problem in early(planned(node, refs, known)) or ():
                problems[str(problem)] = problem
        except InputError as error:
            problems[str(error)] = error
            if not isinstance(error, Unfit):
                break
    raise_together([*problems.values()])


def check_after(node: Node, name: str) -> Check | None:
    """The check of a node that runs once the node `name` is built. One of a node in REPLACED, or of the collection,
    waits for what `node` reads instead: a further collection (`evaluate.others`) has its own nodes.
    """
    checks, inputs = STAGES[node.stage].checks, {source.name for source in node.inputs.values() if source is not None}
    instead = {old: new for old, new in REPLACED.items() if new in inputs}
    instead |= {source.partition(OTHER)[0]: source for source in inputs if OTHER in source}
    if name in instead:
        return None
    replaced = next((old for old, new in instead.items() if new == name), name)
    return checks.get(replaced)


def planned(node: Node, refs: Mapping[str, Ref], known: dict[int, Planned]) -> Planned:
    """The node and all its inputs, with the artifacts that exist. `known`: by `id`."""
    if id(node) not in known:
        ref = refs.get(node.name)
        known[id(node)] = Planned(
            node.name,
            node.stage,
            STAGES[node.stage].section_of(node.name),
            node.config,
            node.shared,
            {name: planned(source, refs, known) if source else None for name, source in node.inputs.items()},
            ref.path if ref else None,
            ref.metrics if ref else {},
        )
    return known[id(node)]
