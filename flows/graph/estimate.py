"""How long stages will take that train a model, encode passages or score pairs and were never built in a store.

The estimates have one digit. A stage's work is counted in tokens times layers; pipeline/training/speed.py measures how
many this machine computes in a second. The texts are counted where `ingest` and `tokens` are in the store, else guessed
from the sizes of the files. Other stages have no estimate: those without a model, and `search`, `adapt` (unless it
trains both encoders) and `attention`, which read few texts with it.
"""

from collections.abc import Iterable
from dataclasses import replace

from flows.graph.plan import Step
from flows.graph.text_size import TextSize, text_size
from flows.graph.workload import WORKLOADS, Shape
from pipeline.errors import InputError
from pipeline.modeling.initial import FILES, InitialConfig
from pipeline.modeling.model_files.existing_model import tokenizer_folder
from pipeline.modeling.model_files.model_config import model_config
from pipeline.runtime import hub
from pipeline.runtime.launch import device_of, layout, precision_of
from pipeline.runtime.planned import MODELS
from pipeline.runtime.processes import workers
from pipeline.runtime.work import Machine
from pipeline.training.speed import Layer, Speed, speed
from tasks.node import Node


def with_estimates(steps: Iterable[Step], dag: Iterable[Node], machine: Machine) -> list[Step]:
    """Returns the steps, in the same order, with an estimate for stages of WORKLOADS that have none.

    None for training on several machines. Takes some seconds if this machine's speed is not known yet.
    """
    by_name = {step.node: step for step in steps}
    sizes: dict[str, TextSize | None] = {}
    for node in dag:
        step, tokens = by_name[node.name], node.inputs.get("tokens")
        if step.action == "reuse" or step.seconds is not None or machine.ray or machine.torchrun:
            continue
        if tokens is None or node.stage not in WORKLOADS:
            continue
        if tokens.name not in sizes:
            sizes[tokens.name] = text_size(tokens, by_name)
        seconds = _seconds(node, sizes[tokens.name], machine)
        if seconds is not None:
            by_name[node.name] = replace(step, seconds=seconds, estimated=True)
    return list(by_name.values())


def _seconds(node: Node, texts: TextSize | None, machine: Machine) -> float | None:
    shape = shape_of(node)
    if shape is None or texts is None or getattr(node.config, "checkpoint", None) is not None:
        return None  # a finished model is only copied
    workload = WORKLOADS[node.stage](node, shape, texts)
    if workload is None:
        return None
    measured = _speed(shape.layer, machine, workload.trains)
    if measured is None:
        return None
    if workload.trains:
        return measured.training_start + workload.amount / measured.training
    return measured.start + workload.amount / measured.forward


def _speed(layer: Layer, machine: Machine, trains: bool) -> Speed | None:
    device = device_of(machine)
    ranks, _ = layout(machine, device, None)
    processes = workers(machine) if device == "cpu" and not trains else ranks
    return speed(layer, device, precision_of(machine, None), processes)


def shape_of(node: Node) -> Shape | None:
    """Returns the shape of a node's model. None if its folder is not on this machine or cannot be read."""
    names = (*MODELS, "cross_encoder", "cross_encoder_1")
    while (folder := getattr(node.config, "checkpoint", None)) is None and node.stage != "initial":
        before = next((node.inputs[name] for name in names if node.inputs.get(name)), None)
        if before is None:
            return None
        node = before
    if isinstance(node.config, InitialConfig) and folder is None:
        if node.config.from_scratch:
            return _from_scratch(node, node.config)
        folder = hub.cached(str(node.config.pretrained), node.config.revision, FILES)
    try:
        config = model_config(tokenizer_folder(folder)) if folder is not None else None
    except InputError:  # a run reports it
        return None
    if config is None:
        return None
    size = int(config["hidden_size"])
    inner, heads = config.get("intermediate_size") or 4 * size, config.get("num_attention_heads") or 1
    return Shape(Layer(size, int(inner), int(heads)), config["num_hidden_layers"], config["vocab_size"])


def _from_scratch(node: Node, config: InitialConfig) -> Shape:
    tokenizer = node.inputs.get("tokenizer")
    vocabulary = getattr(tokenizer.config, "vocab_size", None) if tokenizer is not None else None
    return Shape(Layer(config.hidden_size, config.intermediate_size, config.heads), config.layers, vocabulary or 0)
