"""The work of a stage with a model, in tokens times layers.

Counted are the products of a layer's maps. The last layer computes only the tokens that are needed, and its keys and
values. Attention's scores, norms and the second forward pass of a gradient cache are not counted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flows.graph.text_size import TextSize
from pipeline.pretrain.config import PretrainConfig, read_budget
from pipeline.training.speed import Layer
from tasks.node import Node

SPECIAL = 2
"""Special tokens of an input."""
DEPTH, MINED = 200, 30
"""Passages of a question that are scored, where the recipe says `all`, and mined ones in addition."""


BACKWARD = 3
"""Work of a forward and backward pass, relative to a forward pass: as in pipeline/training/flops.py, without torch."""


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


def _passage(texts: TextSize, limit: int, titles: int) -> float:
    """Tokens of a passage's input."""
    return min(texts.passage + min(texts.title, titles) + SPECIAL, limit)


def _question(texts: TextSize, limit: int) -> float:
    return min(texts.question + SPECIAL, limit)


def _encode(node: Node, shape: Shape, texts: TextSize) -> Workload:
    config: Any = node.config
    encoder = node.shared["encoder"]
    tokens = texts.passages * _passage(texts, config.passage_tokens, encoder.title_tokens)
    return Workload(tokens * _vector(shape, encoder), trains=False)


def _vector(shape: Shape, encoder: Any) -> float:
    """Layers of a pass that gives vectors."""
    return shape.read(1.0 if encoder.pooling == "mean" else 0.0)


def _finetune(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config: Any = node.config
    encoder = node.shared["encoder"]
    examples = _examples(node, texts)
    if examples is None:
        return None
    passage = _passage(texts, config.passage_tokens, encoder.title_tokens)
    tokens = _question(texts, encoder.question_tokens) + (1 + config.negatives_per_query) * passage
    return Workload(examples * tokens * _vector(shape, encoder), trains=True)


def _adapt(node: Node, shape: Shape, texts: TextSize) -> Workload:
    """The training of both encoders, and the passages that the guard encodes: all, as if its lists had them."""
    config: Any = node.config
    encoder, settings = node.shared["encoder"], config.both_encoders
    passage = _passage(texts, node.shared["passage_tokens"], encoder.title_tokens)
    query = _question(texts, encoder.question_tokens)
    tokens = settings.steps * settings.batch_queries * (query + settings.candidates * passage)
    guard = min(texts.passages, 2 * config.depth * config.guard_queries) * passage / BACKWARD
    return Workload((tokens + guard) * _vector(shape, encoder), trains=True)


def _examples(node: Node, texts: TextSize) -> float | None:
    """Questions of all epochs. None if their number is unknown."""
    config: Any = node.config
    if texts.train_questions is None:
        return None
    kinds = 2 if node.inputs.get("mined") and config.mix_negatives == "separate_epochs" else 1
    return kinds * config.epochs * float(node.shared["train_subset"].size(texts.train_questions))


def _cross_encoder(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config: Any = node.config
    examples = _examples(node, texts)
    if examples is None:
        return None
    kept = 1 - 1 / config.folds if config.folds else 1.0
    pairs = kept * examples * (1 + config.negatives_per_query)
    return Workload(pairs * _pair(config, texts) * shape.read(0.0), trains=True)


def _pair(config: Any, texts: TextSize) -> float:
    passage = _passage(texts, config.passage_tokens, config.title_tokens)
    return _question(texts, config.question_tokens) + passage


def _soft_labels(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config: Any = node.config
    if texts.train_questions is None:
        return None
    pairs = texts.train_questions * ((config.negative_depth or DEPTH) + MINED)
    return _scoring(node, shape, texts, pairs / len(_scorers(node)))  # each pair is of one fold


def _pseudo_labels(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config: Any = node.config
    return (
        None
        if texts.unjudged is None
        else _scoring(node, shape, texts, texts.unjudged * min(config.depth, texts.passages))
    )


def _rerank(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config: Any = node.config
    if texts.questions is None:
        return None
    questions = sum(texts.questions[split] for split in config.splits)
    return _scoring(node, shape, texts, questions * min(config.depth, texts.passages))


def _scoring(node: Node, shape: Shape, texts: TextSize, pairs: float) -> Workload:
    """The scores of so many pairs by each cross-encoder of the node; they have one shape and read the same tokens."""
    tokens = sum(pairs * _pair(scorer.config, texts) for scorer in _scorers(node))
    return Workload(tokens * shape.read(0.0), trains=False)


def _scorers(node: Node) -> list[Node]:
    return [one for name, one in node.inputs.items() if name.startswith("cross_encoder") and one is not None]


def _condenser(node: Node, shape: Shape, texts: TextSize) -> Workload | None:
    config: Any = node.config
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
    config: Any = node.config
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
    config: Any = node.config
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
    "adapt": _adapt,
    "encode": _encode,
    "cross_encoder": _cross_encoder,
    "soft_labels": _soft_labels,
    "pseudo_labels": _pseudo_labels,
    "rerank": _rerank,
}
"""By stage. `search` and `attention` have a model too, but read few texts with it. So does `adapt`, which has an
estimate only if it trains both encoders: else it reads no `tokens`."""
