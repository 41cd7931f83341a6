"""How long stages with a model will take that were never built in a store, to one digit.

A stage's work is counted in tokens times layers; pipeline/training/speed.py measures how many this machine computes in
a second. The texts are counted where `ingest` and `tokens` are in the store, else guessed from the sizes of the files.
Nothing is estimated for stages without a model: they take seconds where a model takes minutes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.graph.plan import Step
from flows.graph.text_size import TextSize, text_size
from pipeline.errors import InputError
from pipeline.modeling.existing_model import tokenizer_folder
from pipeline.modeling.initial import FILES, InitialConfig
from pipeline.modeling.model_config import model_config
from pipeline.pretrain.config import PretrainConfig, read_budget
from pipeline.runtime import hub
from pipeline.runtime.launch import device_of, layout, precision_of
from pipeline.runtime.planned import MODELS
from pipeline.runtime.processes import workers
from pipeline.runtime.work import Machine
from pipeline.training.speed import Layer, Speed, speed
from tasks.node import Node

SPECIAL = 2
"""Special tokens of an input."""
NOWHERE = Path("no checkpoints of an earlier part of the training")
DEPTH, MINED = 200, 30
"""Passages of a question that are scored, where the recipe says `all`, and mined ones in addition."""


@dataclass(frozen=True)
class Shape:
    """A model, in layers."""

    layer: Layer
    layers: int
    vocabulary: int

    @property
    def products(self) -> int:
        """Multiplications of a token in the maps of a layer."""
        size = self.layer.hidden_size
        return 4 * size * size + 2 * size * self.layer.intermediate_size

    def read(self, share: float) -> float:
        """Layers of a pass whose last layer is needed at this share of the tokens; others give keys and values."""
        keys_values = 2 * self.layer.hidden_size**2 / self.products
        return self.layers - 1 + keys_values + share * (1 - keys_values)

    def predictions(self, share: float) -> float:
        """The prediction of masked tokens, in layers. `share`: of the tokens."""
        size = self.layer.hidden_size
        return share * size * (size + self.vocabulary) / self.products


@dataclass(frozen=True)
class Workload:
    """Tokens times layers."""

    amount: float
    trains: bool
    """Forward and backward."""


def with_estimates(steps: Iterable[Step], dag: Iterable[Node], machine: Machine) -> list[Step]:
    """Returns the steps, in the same order, with an estimate for stages with a model that have none.

    None for training on several machines. Takes some seconds if this machine's speed is not known yet.
    """
    by_name = {step.node: step for step in steps}
    for node in dag:
        step = by_name[node.name]
        if step.action == "reuse" or step.seconds is not None or machine.ray or machine.torchrun:
            continue
        seconds = _seconds(node, by_name, machine)
        if seconds is not None:
            by_name[node.name] = replace(step, seconds=seconds, estimated=True)
    return list(by_name.values())


def _seconds(node: Node, steps: dict[str, Step], machine: Machine) -> float | None:
    if node.stage not in WORKLOADS or getattr(node.config, "checkpoint", None) is not None:  # a finished model: no work
        return None
    shape, texts = shape_of(node), text_size(node, steps)
    if shape is None or texts is None:
        return None
    workload = WORKLOADS[node.stage](node, shape, texts)
    if workload is None:
        return None
    measured = _speed(shape.layer, machine, workload.trains)
    if measured is None:
        return None
    return measured.start + workload.amount / (measured.training if workload.trains else measured.forward)


def _speed(layer: Layer, machine: Machine, trains: bool) -> Speed | None:
    device = device_of(machine)
    ranks, _ = layout(machine, device, NOWHERE)
    processes = workers(machine) if device == "cpu" and not trains else ranks
    return speed(layer, device, precision_of(machine, NOWHERE), processes)


def shape_of(node: Node) -> Shape | None:
    """Returns the shape of a node's model. None if its folder is not on this machine or cannot be read."""
    names = (*MODELS, "cross_encoder", "cross_encoder_1")
    while (folder := getattr(node.config, "checkpoint", None)) is None and node.stage != "initial":
        before = next((found for name in names if (found := node.inputs.get(name)) is not None), None)
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


def _passage(texts: TextSize, limit: int, titles: int) -> float:
    """Tokens of a passage's input."""
    return min(texts.passage + min(texts.title, titles) + SPECIAL, limit)


def _question(texts: TextSize, limit: int) -> float:
    return min(texts.question + SPECIAL, limit)


def _encode(node: Node, shape: Shape, texts: TextSize) -> Workload:
    encoder = node.shared["encoder"]
    tokens = texts.passages * _passage(texts, node.config.passage_tokens, encoder.title_tokens)
    return Workload(tokens * _vector(shape, encoder), trains=False)


def _vector(shape: Shape, encoder: Any) -> float:
    """Layers of a pass that gives vectors."""
    return shape.read(1.0 if encoder.pooling == "mean" else 0.0)


def _finetune(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config, encoder = node.config, node.shared["encoder"]
    examples = _examples(node, texts)
    if examples is None:
        return None
    passage = _passage(texts, config.passage_tokens, encoder.title_tokens)
    tokens = _question(texts, encoder.question_tokens) + (1 + config.negatives_per_query) * passage
    return Workload(examples * tokens * _vector(shape, encoder), trains=True)


def _examples(node: Node, texts: TextSize) -> float | None:
    """Questions of all epochs. None if their number is unknown."""
    if texts.train_questions is None:
        return None
    kinds = 2 if node.inputs.get("mined") and node.config.mix_negatives == "separate_epochs" else 1
    return kinds * node.config.epochs * float(node.shared["train_subset"].size(texts.train_questions))


def _cross_encoder(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    examples = _examples(node, texts)
    if examples is None:
        return None
    pairs = examples * (1 + node.config.negatives_per_query)
    return Workload(pairs * _pair(node.config, texts) * shape.read(0.0), trains=True)


def _pair(config: Any, texts: TextSize) -> float:
    passage = _passage(texts, config.passage_tokens, config.title_tokens)
    return _question(texts, config.question_tokens) + passage


def _soft_labels(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    scorer = node.inputs["cross_encoder"]
    if texts.train_questions is None or scorer is None:
        return None
    pairs = texts.train_questions * ((node.config.negative_depth or DEPTH) + MINED)
    return Workload(pairs * _pair(scorer.config, texts) * shape.read(0.0), trains=False)


def _condenser(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config = node.config
    block = min(float(config.length), texts.document + SPECIAL)
    batch = config.batch_tokens or (config.batch_blocks or 0) * block
    tokens = _tokens(config, batch, texts.tokens * (1 + SPECIAL / block))
    if tokens is None:
        return None
    layers = shape.read(config.mask_fraction) + shape.predictions(config.mask_fraction)
    return Workload(tokens * (layers + _head(shape, config.head_layers, config.mask_fraction)), trains=True)


def _head(shape: Shape, layers: int, masked: float) -> float:
    """A head of so many layers, which predicts the masked tokens again."""
    return replace(shape, layers=layers).read(masked) + shape.predictions(masked) if layers else 0.0


def _cocondenser(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config = node.config
    longest = min(float(config.span_max), texts.document / 2)
    span = (longest + (min(config.span_min, longest) if config.random_lengths else longest)) / 2 + SPECIAL
    batch = config.batch_tokens or (config.batch_documents or 0) * 2 * span
    tokens = _tokens(config, batch, texts.documents * 2 * span)
    if tokens is None:
        return None
    before = node.inputs["start"]
    layers = shape.read(config.mask_fraction) + shape.predictions(config.mask_fraction)
    head = _head(shape, getattr(before.config, "head_layers", 0) if before else 0, config.mask_fraction)
    return Workload(tokens * (layers + head), trains=True)


def _ict(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config = node.config
    pair = config.segment_tokens / 2 + _passage(texts, config.passage_tokens, 0)
    tokens = _tokens(config, config.batch_passages * pair, texts.passages * pair)
    return None if tokens is None else Workload(tokens * shape.read(0.0), trains=True)


def _tokens(config: PretrainConfig, batch: float, epoch: float) -> float | None:
    """Tokens of a pre-training; None without a budget. `batch`, `epoch`: tokens of each."""
    if config.budget is None:
        return None
    number, unit = read_budget(config.budget)
    return number * {"steps": batch, "epochs": epoch, "tokens": 1.0}[unit]


WORKLOADS: dict[str, Callable[[Node, Shape, TextSize], Workload | None]] = {
    "ict": _ict,
    "condenser": _condenser,
    "cocondenser": _cocondenser,
    "finetune": _finetune,
    "encode": _encode,
    "cross_encoder": _cross_encoder,
    "soft_labels": _soft_labels,
}
"""By stage."""
