"""The whole flow: its nodes and what each one reads. Start here."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from flows.layers import hint
from flows.recipe import Recipe
from pipeline.config import Config
from pipeline.errors import InputError


@dataclass(frozen=True)
class Node:
    """One task run on the page, one artifact in the store."""

    name: str
    stage: str
    """Its entry in tasks/stages.py."""
    config: Config
    inputs: dict[str, "Node | None"] = field(default_factory=dict)
    """What the stage's function is given, by parameter; None where the recipe leaves it out."""


def nodes(recipe: Recipe) -> list[Node]:
    """The nodes of a recipe, each after everything that it reads."""
    r = recipe

    ingest = Node("ingest", "ingest", r.ingest)
    tokenizer = Node("tokenizer", "tokenizer", r.tokenizer, {"collection": ingest})
    tokens = Node("tokens", "tokens", r.tokens, {"collection": ingest, "tokenizer": tokenizer})
    bm25 = Node("bm25", "bm25", r.bm25, {"collection": ingest})

    # Condenser reads general text where the recipe names some (and it is not finished already); coCondenser always
    # reads the collection.
    general, second = tokens, []
    if r.pretraining is not None and r.condenser.checkpoint is None:
        other = Node("ingest-pretraining", "ingest", r.pretraining)
        general = Node("tokens-pretraining", "tokens", r.tokens, {"collection": other, "tokenizer": tokenizer})
        second = [other, general]
    initial = Node("initial", "initial", r.initial, {"tokenizer": tokenizer, "tokens": tokens})
    condenser = Node("condenser", "condenser", r.condenser, {"tokens": general, "start": initial})
    cocondenser = Node("cocondenser", "cocondenser", r.cocondenser, {"tokens": tokens, "start": condenser})

    def retrieval(model: Node, suffix: str, splits: Iterable[str]) -> list[Node]:
        """The collection encoded by `model`, and the run of what it finds for the queries of `splits`."""
        search_config = r.search.model_copy(update={"splits": [s for s in r.search.splits if s in splits]})
        encode = Node(f"encode-{suffix}", "encode", r.encode, {"tokens": tokens, "checkpoint": model})
        index = Node(f"index-{suffix}", "index", r.index, {"collection": ingest, "embeddings": encode})
        search_inputs = {"collection": ingest, "tokens": tokens, "checkpoint": model, "index": index}
        return [encode, index, Node(f"search-{suffix}", "search", search_config, search_inputs)]

    def finetune(name: str, config: Config, mined: Node | None) -> Node:
        data = {"collection": ingest, "tokens": tokens, "start": cocondenser, "bm25": bm25, "mined": mined}
        return Node(name, "finetune", config, data)

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
    report = Node("report", "report", r.report, {"collection": ingest, "evaluate": evaluate, **models})

    return [
        *(ingest, tokenizer, tokens, bm25),
        *(*second, initial, condenser, cocondenser, *pretrained),
        *(stage1, *found1, mine),
        *(stage2, *found2),
        *(evaluate, report),
    ]


def named(dag: Iterable[Node], name: str) -> list[Node]:
    """The node of that name, or the nodes of that stage (`search`: all three searches)."""
    dag = list(dag)
    found = [n for n in dag if n.name == name] or [n for n in dag if name == n.stage or n.name == f"ingest-{name}"]
    if not found:
        known = {n.name for n in dag} | {n.stage for n in dag}
        raise InputError(f"no stage {name!r}{hint(name, sorted(known))}; the stages: {', '.join(n.name for n in dag)}")
    return found


def until(dag: Iterable[Node], name: str) -> list[Node]:
    """The nodes of that name and everything upstream of them, in order."""
    dag = list(dag)
    wanted = {n.name for n in named(dag, name)}
    for node in reversed(dag):
        if node.name in wanted:
            wanted |= {given.name for given in node.inputs.values() if given is not None}
    return [n for n in dag if n.name in wanted]
