"""Finds what will certainly fail in a run, before anything heavy is imported."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from artifacts.store import Store
from flows.graph import early_checks
from flows.graph.plan import plan
from flows.graph.selection import up_to
from pipeline.errors import InputError
from pipeline.paths import absolute_path, broken_link
from pipeline.runtime.host import has_apple_silicon
from pipeline.runtime.launch import check_processes, gpus
from pipeline.runtime.work import Machine
from tasks.keys import sources_of
from tasks.node import Node
from tasks.ray_cluster import check_address, check_device
from tasks.stages import AT_START, STAGES
from tasks.tracking import Tracking
from tasks.tracking import missing as not_installed

WORKER = "PREFECT__FLOW_RUN_ID"
"""Set if a Prefect worker runs the flow, in a folder that the caller does not know."""


def check(
    store: Store,
    dag: Iterable[Node],
    wanted: Iterable[Node],
    machine: Machine | None = None,
    tracking: Tracking | None = None,
) -> None:
    """Raises InputError with one line for each missing path, and the commands that download it.

    Stages in the store need no paths. Raises InputError too if the cluster of `machine` does not answer, if a stage
    needs a GPU that is missing, and if a tracker that `tracking` names is not installed.
    """
    if tracking is not None and (lacking := not_installed(tracking)):
        raise InputError(*lacking)
    dag, wanted = list(dag), list(wanted)
    absent = missing_inputs(dag, wanted)
    lines = [line for name in absent for line in absent[name] if not _held(store, dag, name)]
    if lines and WORKER in os.environ and any(_is_lost(path) for node in wanted for path in _paths(node)):
        lines.append(f"a worker looks for relative paths in {Path.cwd()}: give absolute ones")
    if lines:
        raise InputError(*dict.fromkeys(lines))
    early_checks.check(AT_START, {}, wanted)
    if machine is not None and needs_gpu(store, dag, wanted, machine):
        check_gpu(machine)
    if machine is not None and on_ray(store, dag, wanted, machine):
        check_device(machine)
        check_address(machine.ray)


def needs_gpu(store: Store, dag: list[Node], wanted: Iterable[Node], machine: Machine) -> bool:
    """Whether a stage to be built needs a GPU of this machine. On a Mac `auto` is its GPU."""
    needed = machine.device in ("cuda", "mps") or (machine.device == "auto" and has_apple_silicon())
    stages = [(node.name, STAGES[node.stage]) for node in wanted if needed]
    here = [name for name, stage in stages if stage.gpu and not (machine.ray and stage.parts)]
    return any(not _held(store, dag, name) for name in here)


def check_gpu(machine: Machine) -> None:
    """Raises InputError if this machine lacks the GPU of `machine`, or if that cannot run the processes."""
    if machine.device == "cuda" and not gpus():
        raise InputError("machine.device: cuda, but there is no CUDA device here; with auto the CPU is used")
    if machine.device == "mps" and not has_apple_silicon():
        raise InputError("machine.device: mps, but this is no Mac with Apple silicon; with auto another device is used")
    check_processes(machine)


def on_ray(
    store: Store, dag: list[Node], wanted: Iterable[Node], machine: Machine, refreshed: Iterable[str] = ()
) -> bool:
    """Whether the run has parts to build on Ray. `refreshed`: nodes that are always built."""
    parts = [node.name for node in wanted if STAGES[node.stage].parts] if machine.ray else []
    return any(name in refreshed or not _held(store, dag, name) for name in parts)


def missing_inputs(dag: Iterable[Node], wanted: Iterable[Node]) -> dict[str, list[str]]:
    """{wanted node: one line for each of its inputs outside the store that is missing or unusable}; no node without.

    A model that a wanted node reads, such as for its tokenizer, is checked for all nodes of the DAG that read it: a
    partial run accepts no model that the whole run refuses.
    """
    wanted = list(wanted)
    lines = {node.name: missing(node) for node in wanted}
    others = [node for node in dag if node.name not in lines]
    readers = {node.name: folders for node in wanted if others and (folders := _model_folders(node))}
    for other in others if readers else ():
        read = {path.absolute() for path in _paths(other)}
        reader = next((name for name, folders in readers.items() if read & folders), None)
        if reader is not None:
            lines[reader] += missing(other)
    return {name: found for name, found in lines.items() if found}


def _model_folders(node: Node) -> set[Path]:
    """Returns the folders of the models that the node reads, and all folders above them."""
    models = [path.absolute() for path in _paths(node) if (path / "config.json").is_file()]
    return {folder for model in models for folder in (model, *model.parents)}


def missing(node: Node) -> list[str]:
    """One line for each input outside the store that is missing."""
    entry = STAGES[node.stage]
    lines = entry.missing(node.config) if entry.missing else []
    in_recipe = [_in_recipe(node, line) for line in lines]
    if lines and entry.sources:  # a stage that names its sources reports each of them itself
        return in_recipe
    absent = [(name, path) for name, path in sources_of(node.stage, node.config).items() if not path.exists()]
    unreported = [(name, path) for name, path in absent if not any(str(path) in line for line in lines)]
    return in_recipe + [
        f"{entry.field_of(node.name, name)}: {absolute_path(path)}: {broken_link(path) or 'no such file or folder'}"
        for name, path in unreported
    ]


def _paths(node: Node) -> Iterable[Path]:
    return sources_of(node.stage, node.config).values()


def _is_lost(path: Path) -> bool:
    return not path.is_absolute() and not path.exists()


def _in_recipe(node: Node, line: str) -> str:
    """Replaces STAGE.FIELD by the recipe's name of it; a path may contain the same letters."""
    fields = "|".join(type(node.config).model_fields)
    entry = STAGES[node.stage]
    return re.sub(rf"(?<![\w./\\-]){node.stage}\.({fields})\b", lambda match: entry.field_of(node.name, match[1]), line)


def _held(store: Store, dag: list[Node], name: str) -> bool:
    return plan(store, up_to(dag, name))[-1].action == "reuse"
