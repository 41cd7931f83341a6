"""The whole flow: its nodes and what each one reads. Start here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flows.recipe import Recipe, configuration
from pipeline.config import Config


@dataclass(frozen=True)
class Node:
    """One task run on the page, one artifact in the store."""

    name: str
    stage: str
    """Its entry in tasks/stages.py."""
    config: Config
    inputs: Mapping[str, "Node | None"] = field(default_factory=dict)
    """What the stage's function is given, by parameter; None where the recipe leaves it out."""
    shared: Mapping[str, Config] = field(default_factory=dict)
    """Sections that several stages read, by parameter."""


def nodes(recipe: Recipe) -> list[Node]:
    """The nodes of a recipe, each after everything that it reads."""
    r = recipe
    encoder = {"encoder": r.encoder}

    ingest = Node("ingest", "ingest", r.ingest)
    tokenizer = Node("tokenizer", "tokenizer", r.tokenizer, {"collection": ingest})
    tokens = Node("tokens", "tokens", r.tokens, {"collection": ingest, "tokenizer": tokenizer})
    bm25 = Node("bm25", "bm25", r.bm25, {"collection": ingest})

    # Condenser reads general text where the recipe names some, coCondenser always the collection. What is finished
    # already (`checkpoint`) needs nothing of what it was made from.
    general, second = tokens, []
    if r.pretraining is not None and r.condenser.checkpoint is None and r.cocondenser.checkpoint is None:
        other = Node("ingest-pretraining", "ingest", r.pretraining)
        general = Node("tokens-pretraining", "tokens", r.tokens, {"collection": other, "tokenizer": tokenizer})
        second = [other, general]
    initial = Node("initial", "initial", r.initial, {"tokenizer": tokenizer, "tokens": tokens}, encoder)
    condenser = None
    if r.cocondenser.checkpoint is None:
        condenser = Node("condenser", "condenser", r.condenser, {"tokens": general, "start": initial})
    start = condenser or initial
    cocondenser = Node("cocondenser", "cocondenser", r.cocondenser, {"tokens": tokens, "start": start})

    def retrieval(model: Node, suffix: str, splits: Iterable[str]) -> list[Node]:
        """The collection encoded by `model`, and the run of what it finds for the queries of `splits`."""
        search_config = r.search.model_copy(update={"splits": [s for s in r.search.splits if s in splits]})
        encode = Node(f"encode-{suffix}", "encode", r.encode, {"tokens": tokens, "checkpoint": model}, encoder)
        index = Node(f"index-{suffix}", "index", r.index, {"collection": ingest, "embeddings": encode})
        search_inputs = {"collection": ingest, "tokens": tokens, "checkpoint": model, "index": index}
        return [encode, index, Node(f"search-{suffix}", "search", search_config, search_inputs, encoder)]

    def finetune(name: str, config: Config, mined: Node | None) -> Node:
        data = {"collection": ingest, "tokens": tokens, "start": cocondenser, "bm25": bm25, "mined": mined}
        data |= {"scores": None, "pseudo": None}
        return Node(name, "finetune", config, data, encoder)

    pretrained = retrieval(cocondenser, "pretrained", ("dev", "test"))
    stage1 = finetune("stage1", r.stage1, None)
    found1 = retrieval(stage1, "stage1", ("train", "dev", "test"))
    mine = Node("mine", "mine", r.mine, {"collection": ingest, "run": found1[-1]})
    # Stage 2 starts again from the pre-trained model, not from stage 1 (coCondenser, section 4).
    stage2 = finetune("stage2", r.stage2, mine)
    found2 = retrieval(stage2, "stage2", ("dev", "test"))

    runs = {"pretrained": pretrained[-1], "stage1": found1[-1], "stage2": found2[-1]}
    evaluate = Node("evaluate", "evaluate", r.evaluate, {"collection": ingest, "bm25": bm25, **runs})
    models = {"condenser": condenser, "cocondenser": cocondenser, "stage1": stage1, "stage2": stage2}
    page = r.report.model_copy(update={"configuration": configuration(r)})
    report = Node("report", "report", page, {"collection": ingest, "evaluate": evaluate, **models})

    return [
        *(ingest, tokenizer, tokens, bm25),
        *(*second, initial, *([condenser] if condenser else []), cocondenser, *pretrained),
        *(stage1, *found1, mine),
        *(stage2, *found2),
        *(evaluate, report),
    ]
