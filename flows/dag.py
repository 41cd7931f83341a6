"""The nodes of a recipe's flow, and what each of them reads. Start here."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.recipes.command_line import command
from flows.recipes.recipe import Recipe, configuration
from pipeline.adapt.map_vectors import MapVectorsConfig
from pipeline.config import Config
from pipeline.data.readers.beir import BeirConfig
from pipeline.data.readers.text_config import TextConfig
from pipeline.dense.index_kinds import IndexConfig
from pipeline.errors import InputError
from pipeline.evaluate.others import ON, START
from pipeline.evaluate.rows import fusion_rows
from pipeline.modeling.adopt import AdoptConfig
from pipeline.modeling.existing_model import tokenizer_folder
from tasks.node import Node
from tasks.stages import OTHER

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


def nodes(recipe: Recipe) -> list[Node]:
    """Returns the nodes of a recipe, each after everything that it reads."""
    graph = Graph(recipe)
    add_collection(graph)
    add_other_collections(graph)
    if recipe.model is not None:
        model = add_existing_model(graph, recipe.model)
    else:
        add_start(graph)
        writes = recipe.generate.is_on
        if not writes:
            add_other_starts(graph)
        pretrained = add_pretraining(graph)
        if writes:
            add_generated_questions(graph, pretrained)
            add_other_starts(graph)
        stage1 = add_stage1(graph, pretrained)
        newest = add_rounds(graph, pretrained, stage1)
        add_rerank(graph)
        model = newest if "stage1" in graph.runs or recipe.rounds.number else graph.get("adapted") or pretrained
    add_index_of_whole_texts(graph, model)
    add_others(graph, model)
    add_results(graph)
    return list(graph.nodes.values())


def add_collection(graph: Graph) -> None:
    """The collection, its tokens and BM25, which most other nodes read."""
    recipe = graph.recipe
    ingest = graph.add("ingest", "ingest", recipe.ingest)
    tokenizer = graph.add("tokenizer", "tokenizer", recipe.tokenizer, collection=ingest)
    graph.add("tokens", "tokens", recipe.tokens, collection=ingest, tokenizer=tokenizer)
    graph.add("bm25", "bm25", recipe.bm25, collection=ingest)


def add_other_collections(graph: Graph) -> None:
    """The collections of `evaluate.others` and their tokens; before any training, because they may be refused."""
    recipe = graph.recipe
    for name, folder in recipe.evaluate.other_folders.items():
        config = BeirConfig(reader="beir", folder=folder, document_key="", metadata=[])
        ingest = graph.add(f"ingest{OTHER}{name}", "ingest", config)
        inputs = {"collection": ingest, "tokenizer": graph["tokenizer"]}
        graph.add(f"tokens{OTHER}{name}", "tokens", recipe.tokens, **inputs)


def add_existing_model(graph: Graph, checkpoint: Path) -> Node:
    """An existing model that is searched and evaluated, as it is or adapted without questions. Returns the last one."""
    model = add_adopted(graph, "model", checkpoint, graph["tokenizer"])
    graph.trained["model"] = graph.encoders["model"] = model
    graph.runs["model"] = add_retrieval(graph, model, "model", JUDGED)
    return add_adaptation(graph, model, "model")


def add_adaptation(graph: Graph, model: Node, suffix: str) -> Node:
    """The model `model`, adapted without questions if the recipe says so, and its search. Returns the last model.

    `suffix`: of the nodes that encode and index the collection by `model`; their vectors are mapped, not encoded again.
    """
    recipe, ingest = graph.recipe, graph["ingest"]
    if recipe.adapt.queries is None:
        return model
    inputs = {"collection": ingest, "checkpoint": model, "index": graph[f"index-{suffix}"], "bm25": graph["bm25"]}
    adapted = graph.add("adapted", "adapt", recipe.adapt, "encoder", **inputs)
    add_mapped(graph, adapted, "adapted", suffix)
    graph.runs["adapted"] = add_retrieval(graph, adapted, "adapted", JUDGED)
    return adapted


def add_mapped(graph: Graph, adapted: Node, suffix: str, start: str) -> None:
    """The passages' vectors by an adapted model. `start`: suffix of the node with those of the model as it was."""
    inputs = {"checkpoint": adapted, "embeddings": graph[f"encode-{start}"]}
    graph.add(f"encode-{suffix}", "map_vectors", MapVectorsConfig(), **inputs)


def add_adopted(graph: Graph, name: str, checkpoint: Path, tokenizer: Node) -> Node:
    """A bi-encoder from another program."""
    encoder = graph.recipe.encoder
    config = AdoptConfig(checkpoint=checkpoint, pooling=encoder.pooling, normalise=encoder.normalise)
    return graph.add(name, "adopt", config, tokenizer=tokenizer)


def add_own_tokens(graph: Graph, name: str, **source: str | Path | None) -> tuple[Node, Node]:
    """The tokenizer of the model `name`, and the collection's tokens by it. `source`: fields of `tokenizer`.

    If it is the recipe's tokenizer, its bytes are equal, and so the store has the tokens already.
    """
    recipe = graph.recipe
    config = recipe.tokenizer.model_copy(update={"pretrained": None, "path": None, **source})
    tokenizer = graph.add(f"tokenizer-{name}", "tokenizer", config, collection=graph["ingest"])
    inputs = {"collection": graph.collection, "tokenizer": tokenizer}
    return tokenizer, graph.add(f"tokens-{name}", "tokens", recipe.tokens, **inputs)


def add_start(graph: Graph) -> None:
    """The general text, if the recipe reads one, and the model that the first training starts from."""
    recipe, tokenizer = graph.recipe, graph["tokenizer"]
    if recipe.pretraining is not None and recipe.reads_general_text:
        general = graph.add("ingest-pretraining", "ingest", recipe.pretraining)
        graph.add("tokens-pretraining", "tokens", recipe.tokens, collection=general, tokenizer=tokenizer)
    tokens = graph.general_text if recipe.initial.reads_passages else graph["tokens"]
    graph.add("initial", "initial", recipe.initial, "encoder", tokenizer=tokenizer, tokens=tokens)


def add_other_starts(graph: Graph) -> None:
    """What else is read from outside; before any training that needs none of it: it may be refused."""
    add_cross_encoder_start(graph)
    add_sources_of_negatives(graph)


def add_generated_questions(graph: Graph, pretrained: Node) -> None:
    """Training questions that a language model writes; the trainings read them instead of `ingest`.

    What reads no training question stays as it is: pre-training, the passages' vectors and the evaluation. So another
    prompt trains no pre-trained model again.
    """
    recipe, config = graph.recipe, graph.recipe.generate
    if config.round_trip == "auto":
        config = config.model_copy(update={"round_trip": "fusion" if recipe.starts_from_embedding_model else "bm25"})
    fuses = config.round_trip == "fusion"
    inputs = {
        "collection": graph["ingest"],
        "bm25": graph["bm25"] if config.round_trip is not None else None,
        "checkpoint": pretrained if fuses else None,
        "index": graph["index-pretrained"] if fuses else None,
    }
    written = graph.add("generate", "generate", config, *(("encoder",) if fuses else ()), **inputs)
    tokenizer = graph["tokenizer"]
    graph.add("tokens-generate", "tokens", recipe.tokens, collection=written, tokenizer=tokenizer)
    graph.add("bm25-generate", "bm25", recipe.bm25, collection=written)


def add_cross_encoder_start(graph: Graph) -> None:
    """The tokens of a cross-encoder from another model, and that model; before any training: they may be refused."""
    recipe, other = graph.recipe, graph.recipe.cross_encoder_initial
    if not recipe.scores_pairs:
        return
    if recipe.cross_encoder.checkpoint is not None:
        add_own_tokens(graph, "cross-encoder", path=recipe.cross_encoder.checkpoint)
    elif not other.is_own:
        source = {"pretrained": other.pretrained, "revision": other.revision}
        tokenizer, tokens = add_own_tokens(graph, "cross-initial", **source, path=other.checkpoint)
        changes = {**source, "checkpoint": other.checkpoint, "new_mlm_head": False}
        config = recipe.initial.model_copy(update=changes)
        graph.add("cross-initial", "initial", config, tokenizer=tokenizer, tokens=tokens)


def add_sources_of_negatives(graph: Graph) -> None:
    """Another model that mines, and a file of negatives; before any training, because they may be refused."""
    recipe = graph.recipe
    if recipe.rounds.miner is not None:
        tokenizer, _ = add_own_tokens(graph, "miner", path=tokenizer_folder(recipe.rounds.miner))
        add_adopted(graph, "miner", recipe.rounds.miner, tokenizer)
    if recipe.negatives_file is not None:
        graph.add("negatives-file", "negatives_file", recipe.negatives_file, collection=graph["ingest"])


def add_pretraining(graph: Graph) -> Node:
    """ICT, Condenser and coCondenser, as far as the recipe has them. Returns the pre-trained model."""
    recipe, model = graph.recipe, graph["initial"]
    # A finished coCondenser (`checkpoint`) needs none of the trainings before it.
    from_scratch = recipe.cocondenser.checkpoint is None
    if recipe.has_stage("ict") and from_scratch:
        tokens = graph.tokens_of(recipe.ict.corpus)
        model = graph.trained["ict"] = graph.add("ict", "ict", recipe.ict, tokens=tokens, start=model)
    if recipe.has_stage("condenser") and from_scratch:
        model = graph.add("condenser", "condenser", recipe.condenser, tokens=graph.general_text, start=model)
        graph.trained["condenser"] = model
    if recipe.has_stage("cocondenser"):
        tokens = graph.tokens_of(recipe.cocondenser.corpus)
        model = graph.add("cocondenser", "cocondenser", recipe.cocondenser, tokens=tokens, start=model)
        graph.trained["cocondenser"] = model
    graph.encoders["pretrained"] = model
    graph.runs["pretrained"] = add_retrieval(graph, model, "pretrained", JUDGED)
    add_adaptation(graph, model, "pretrained")
    return model


def add_stage1(graph: Graph, pretrained: Node) -> Node:
    """Fine-tuning on BM25 negatives, and the search that the first round mines. Returns the model."""
    recipe = graph.recipe
    model = add_finetuning(graph, "stage1", recipe.stage1, pretrained)
    if recipe.stage1.loss != "learning_to_rank":  # it orders the passages alike for every question: no search
        reads_mined = recipe.negatives_file is None or recipe.pseudo_labels is not None
        mines = recipe.rounds.number > 0 and recipe.rounds.miner is None and reads_mined
        graph.runs["stage1"] = add_retrieval(graph, model, "stage1", ("train", *JUDGED) if mines else JUDGED)
    if miner := graph.get("miner"):
        add_retrieval(graph, miner, "miner", ("train",), "tokens-miner")
    return model


def add_rounds(graph: Graph, pretrained: Node, model: Node) -> Node:
    """Stage 2, once for each round. `model`: of stage 1. Returns the model of the last round."""
    recipe = graph.recipe
    mined_run = graph.get("search-miner") or graph.runs.get("stage1")
    for number in range(1, recipe.rounds.number + 1):
        suffix = f"-{number}" if number > 1 else ""
        negatives = add_negatives(graph, pretrained, mined_run, number, suffix)
        # Stage 2 starts again from the pre-trained model, not from stage 1 (coCondenser, section 4).
        start = model if number > 1 and recipe.rounds.start == "previous" else pretrained
        name = f"stage2{suffix}"
        model = add_finetuning(graph, name, recipe.stage2, start, **negatives)
        splits = ("train", *JUDGED) if number < recipe.rounds.number else JUDGED
        mined_run = graph.runs[name] = add_retrieval(graph, model, name, splits)
    return model


def add_negatives(graph: Graph, pretrained: Node, run: Node | None, number: int, suffix: str) -> dict[str, Node | None]:
    """The negatives and labels of a round, mined from `run`. Returns what stage 2 reads, by parameter."""
    recipe = graph.recipe
    mined = graph.get("negatives-file") if number == 1 else None
    if mined is None:
        mined = graph.add(f"mine{suffix}", "mine", recipe.mine, collection=graph.collection, run=run)
    teacher = add_cross_encoder(graph, pretrained, 1) if recipe.teaches else None
    soft_labels = pseudo_labels = None
    by_fusion = recipe.stage2.loss == "soft_labels" and recipe.fusion_labels is not None
    if (recipe.stage2.loss == "soft_labels" and not by_fusion) or recipe.denoise is not None:
        inputs = {**graph.pair_texts, "cross_encoder": teacher, "bm25": graph.bm25, "mined": mined}
        soft_labels = graph.add(f"soft-labels{suffix}", "soft_labels", recipe.soft_labels, **inputs)
    if recipe.denoise is not None:
        mined = graph.add(f"denoise{suffix}", "denoise", recipe.denoise, mined=mined, soft_labels=soft_labels)
    if recipe.pseudo_labels is not None:
        inputs = {**graph.pair_texts, "run": run, "cross_encoder": teacher}
        pseudo_labels = graph.add(f"pseudo-labels{suffix}", "pseudo_labels", recipe.pseudo_labels, **inputs)
    if by_fusion:
        soft_labels = add_fusion_labels(graph, pretrained, mined, suffix)
    elif recipe.stage2.loss != "soft_labels":
        soft_labels = None  # denoise alone reads them
    return {"mined": mined, "soft_labels": soft_labels, "pseudo_labels": pseudo_labels}


def add_fusion_labels(graph: Graph, pretrained: Node, mined: Node, suffix: str) -> Node:
    """Soft labels by the fusion of BM25 and the model that fine-tuning starts from, which searches the questions."""
    config = graph.recipe.fusion_labels
    assert config is not None
    name = "search-teacher"
    if name not in graph.nodes:
        add_search(graph, pretrained, name, graph["index-pretrained"], ("train",))
    inputs = {"collection": graph.collection, "bm25": graph.bm25, "run": graph[name], "mined": mined}
    return graph.add(f"fusion-labels{suffix}", "fusion_labels", config, **inputs)


def add_finetuning(graph: Graph, name: str, config: Config, start: Node, **negatives: Node | None) -> Node:
    """A fine-tuning on BM25 negatives and on `negatives`."""
    inputs: dict[str, Node | None] = {**graph.texts, "start": start}
    inputs |= {"bm25": graph.bm25, "mined": None, "soft_labels": None, "pseudo_labels": None} | negatives
    model = graph.add(name, "finetune", config, "encoder", "train_subset", **inputs)
    graph.trained[name] = graph.encoders[name] = model
    return model


def add_cross_encoder(graph: Graph, pretrained: Node, number: int) -> Node:
    """The cross-encoder `number` (from 1) of the ensemble, which is added once. They differ in their seeds."""
    name = "cross-encoder" + (f"-{number}" if number > 1 else "")
    if name not in graph.nodes:
        section = graph.recipe.cross_encoder
        config = section.model_copy(update={"seed": section.seed + number - 1})
        # Of a finished one only the tokenizer is read besides its checkpoint.
        start = graph.get("tokenizer-cross-encoder") or graph.get("cross-initial") or pretrained
        inputs = {**graph.pair_texts, "start": start, "bm25": graph.bm25}
        mined = graph.get("negatives-file") or graph.get("mine")  # those of the first round
        graph.trained[name] = graph.add(name, "cross_encoder", config, "train_subset", **inputs, mined=mined)
    return graph[name]


def add_rerank(graph: Graph) -> None:
    """The last dense run, reranked by the ensemble of cross-encoders."""
    recipe = graph.recipe
    if recipe.rerank is None or ("stage1" not in graph.runs and not recipe.rounds.number):
        return
    numbers = range(1, recipe.ensemble + 1)
    members = {f"cross_encoder_{n}": add_cross_encoder(graph, graph.encoders["pretrained"], n) for n in numbers}
    inputs = {**graph.pair_texts, "run": list(graph.runs.values())[-1]}
    graph.runs["rerank"] = graph.add("rerank", "rerank", recipe.rerank, **inputs, **members)


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
    recipe = graph.recipe
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
    graph: Graph, model: Node, suffix: str, ingest: Node, tokens: Node, config: IndexConfig | None = None
) -> Node:
    """Encodes and indexes a collection. Returns the index. `config`: None: the recipe's."""
    recipe = graph.recipe
    encode = graph.get(f"encode-{suffix}")
    if encode is None:
        encode = graph.add(
            f"encode-{suffix}", "encode", recipe.encode, "encoder", collection=ingest, tokens=tokens, checkpoint=model
        )
    return graph.add(f"index-{suffix}", "index", config or recipe.index, collection=ingest, embeddings=encode)


def add_index_of_whole_texts(graph: Graph, model: Node) -> None:
    """What `cocondenser search` answers from, where questions were cut out of the texts that are evaluated."""
    recipe = graph.recipe
    if not isinstance(recipe.ingest, TextConfig) or not recipe.ingest.questions:
        return
    whole = graph.add("ingest-whole", "ingest", recipe.ingest.model_copy(update={"questions": ()}))
    tokens = graph.add("tokens-whole", "tokens", recipe.tokens, collection=whole, tokenizer=graph["tokenizer"])
    graph.add("bm25-whole", "bm25", recipe.bm25, collection=whole)
    add_index(graph, model, "whole", whole, tokens)


def add_others(graph: Graph, model: Node) -> None:
    """`model` and what it started from, searched exactly and measured on the collections of `evaluate.others`."""
    recipe = graph.recipe
    if not recipe.evaluate.others:
        return
    assert recipe.existing_start is not None  # cross_checks
    start = graph[recipe.existing_start]
    if model is start:
        raise InputError("evaluate.others: this recipe does not change its model: set it to []")
    final = "pretrained" if model is graph.encoders.get("pretrained") else model.name
    # Of BEIR's grades, those above 0 are relevant. Systems and fusions are of the recipe's own collection.
    config = recipe.evaluate.model_copy(update={"others": [], "systems": {}, "fusions": [], "relevance": 1})
    exact = recipe.index.model_copy(update={"kind": "flat"})
    measured = {}
    for name in recipe.evaluate.other_folders:
        texts = {"collection": graph[f"ingest{OTHER}{name}"], "tokens": graph[f"tokens{OTHER}{name}"]}
        runs = {}
        for run, encoder, suffix in ((START, start, f"start{OTHER}{name}"), (final, model, f"final{OTHER}{name}")):
            if encoder.stage == "adapt" and encoder.inputs["checkpoint"] is start:
                add_mapped(graph, encoder, suffix, f"start{OTHER}{name}")
            index = add_index(graph, encoder, suffix, *texts.values(), exact)
            runs[run] = add_search(graph, encoder, f"search-{suffix}", index, JUDGED, texts)
        inputs = {"collection": texts["collection"], "bm25": None, **runs}
        measured[f"{ON}{name}"] = graph.add(f"evaluate{OTHER}{name}", "evaluate", config, **inputs)
    graph.add("others", "others", config, **measured)


def add_results(graph: Graph) -> None:
    """The evaluation of all runs, the attention of all encoders, and the report."""
    recipe, ingest = graph.recipe, graph["ingest"]
    fusion_rows(recipe.evaluate, ["bm25", *graph.runs])  # refuses an unknown run before anything is built
    own = recipe.evaluate.model_copy(update={"others": []})  # what is measured here is the same with and without them
    evaluate = graph.add("evaluate", "evaluate", own, collection=ingest, bm25=graph["bm25"], **graph.runs)
    attention = None
    if recipe.attention.sections:
        tokens = graph.tokens_of(recipe.attention.corpus)
        attention = graph.add("attention", "attention", recipe.attention, tokens=tokens, **graph.encoders)
    inputs = {
        "collection": ingest,
        "evaluate": evaluate,
        "attention": attention,
        "bm25": graph["bm25"],
        "others": graph.get("others"),
        **graph.trained,
    }
    whole_recipe = {"configuration": configuration(recipe), "command": command(recipe)}
    graph.nodes["report"] = Node("report", "report", recipe.report, inputs, whole_recipe)
