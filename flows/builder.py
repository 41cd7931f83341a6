"""The nodes of a recipe's flow while they are added one by one, and those of a retrieval, which many models need."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from flows.recipes.recipe import Recipe
from pipeline.adapt.map_vectors import MapVectorsConfig
from pipeline.config import Config
from pipeline.dense.index_kinds import IndexConfig
from tasks.node import Node

JUDGED = ("dev", "test")
"""The splits that are evaluated."""


@dataclass
class Graph:
    """The nodes of a recipe while they are added one by one."""

    recipe: Recipe
    nodes: dict[str, Node] = field(default_factory=dict)
    """By name, in the order in which they run."""
    runs: dict[str, Node] = field(default_factory=dict)
    """The searches that are evaluated, by the system's name."""
    trained: dict[str, Node] = field(default_factory=dict)
    """The models whose training the report shows."""
    encoders: dict[str, Node] = field(default_factory=dict)
    """The models whose attention is measured."""

    def add(self, name: str, stage: str, config: Config, *shared: str, **inputs: Node | None) -> Node:
        """Adds a node. `shared`: the recipe's sections that its stage reads with its own configuration."""
        sections: dict[str, Any] = {section: getattr(self.recipe, section) for section in shared}
        if "encoder" in sections and stage != "finetune":  # no other stage reads them, and they would change its key
            sections["encoder"] = sections["encoder"].model_copy(update={"dimensions": None})
        self.nodes[name] = Node(name, stage, config, inputs, sections)
        return self.nodes[name]

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def get(self, name: str) -> Node | None:
        return self.nodes.get(name)

    @property
    def general_text(self) -> Node:
        """The tokens that Condenser reads."""
        return self.nodes.get("tokens-pretraining") or self.nodes["tokens"]

    @property
    def collection(self) -> Node:
        """The collection with the training questions, also those that a language model writes."""
        return self.get("generate") or self["ingest"]

    @property
    def bm25(self) -> Node:
        """BM25's lists of the training questions."""
        return self.get("bm25-generate") or self["bm25"]

    @property
    def texts(self) -> dict[str, Node]:
        """The collection and its tokens, by parameter."""
        return self.texts_of("tokens-generate", "tokens")

    @property
    def pair_texts(self) -> dict[str, Node]:
        """The collection and its tokens, as cross-encoders read them."""
        return self.texts_of("tokens-cross-encoder", "tokens-cross-initial", "tokens-generate", "tokens")

    def texts_of(self, *names: str) -> dict[str, Node]:
        """The collection and the first of these tokens that exist, by parameter."""
        return {"collection": self.collection, "tokens": next(self[name] for name in names if name in self.nodes)}

    def tokens_of(self, corpus: str) -> Node:
        """The tokens that a section's field `corpus` names."""
        return self.general_text if corpus == "pretraining" else self.nodes["tokens"]


def add_retrieval(graph: Graph, model: Node, suffix: str, splits: Iterable[str], tokens: str | None = None) -> Node:
    """Encodes the collection, indexes it and searches it for the questions of `splits`. Returns the search.

    `tokens`: the node with the tokens that the model reads, if not the recipe's own. A node `encode-SUFFIX` that is
    there already is not added.
    """
    index = add_index(graph, model, suffix, graph["ingest"], graph[tokens or "tokens"])
    texts = graph.texts_of(tokens) if tokens else None
    return add_search(graph, model, f"search-{suffix}", index, splits, texts)


def add_search(
    graph: Graph, model: Node, name: str, index: Node, splits: Iterable[str], texts: dict[str, Node] | None = None
) -> Node:
    """Searches an index of the model's vectors for the questions of `splits`.

    `texts`: the collection with the questions, and its tokens, by parameter; None: the recipe's own.
    """
    recipe, of_index = graph.recipe, index.config
    assert isinstance(of_index, IndexConfig)
    searched = [split for split in recipe.search.splits if split in splits]
    changes = {
        "splits": searched,
        "unjudged_train_questions": recipe.search.unjudged_train_questions and "train" in searched,
        # An exact index reads none of these fields, and they would change the key.
        "approximate": None if of_index.kind == "flat" else recipe.search.approximate,
    }
    config = recipe.search.model_copy(update=changes)
    inputs = {**(texts or graph.texts), "checkpoint": model, "index": index}
    return graph.add(name, "search", config, "encoder", **inputs)


def add_index(
    graph: Graph,
    model: Node,
    suffix: str,
    ingest: Node,
    tokens: Node,
    config: IndexConfig | None = None,
    encode: Node | None = None,
) -> Node:
    """Encodes and indexes a collection. Returns the index. `config`: None: the recipe's. `encode`: the vectors."""
    recipe = graph.recipe
    encode = encode or graph.get(f"encode-{suffix}")
    if encode is None:
        encode = graph.add(
            f"encode-{suffix}", "encode", recipe.encode, "encoder", collection=ingest, tokens=tokens, checkpoint=model
        )
    own = config or recipe.index
    index = graph.add(f"index-{suffix}", "index", own, collection=ingest, embeddings=encode)
    if own.dimension is not None:  # whole vectors are indexed as they are
        index = graph.nodes[index.name] = replace(index, shared={"normalise": recipe.encoder.normalise})
    return index


def add_mapped(graph: Graph, adapted: Node, suffix: str, start: str) -> None:
    """The passages' vectors by an adapted model. `start`: suffix of the node with those of the model as it was."""
    inputs = {"checkpoint": adapted, "embeddings": graph[f"encode-{start}"]}
    graph.add(f"encode-{suffix}", "map_vectors", MapVectorsConfig(), **inputs)
