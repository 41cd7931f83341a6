"""The nodes that measure a model and its start on further collections (`evaluate.others`)."""

from pathlib import Path

from flows.builder import JUDGED, Graph, add_index, add_mapped, add_search
from pipeline.data.readers.beir import BeirConfig
from pipeline.errors import InputError
from pipeline.evaluate.others import ON, START
from tasks.node import Node
from tasks.stages import OTHER


def add_other_collections(graph: Graph) -> None:
    """The collections of `evaluate.others` and their tokens; before any training, because they may be refused."""
    recipe = graph.recipe
    own: Path | None = getattr(recipe.ingest, "folder", None)
    for name, folder in recipe.evaluate.other_folders.items():
        if own is not None and own.resolve() == folder.resolve():
            raise InputError(f"evaluate.others: {folder} is the recipe's own collection: leave it out")
        config = BeirConfig(reader="beir", folder=folder, document_key="", metadata=())
        ingest = graph.add(f"ingest{OTHER}{name}", "ingest", config)
        inputs = {"collection": ingest, "tokenizer": graph["tokenizer"]}
        graph.add(f"tokens{OTHER}{name}", "tokens", recipe.tokens, **inputs)


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
            is_mapped = encoder.stage == "adapt" and not recipe.adapt.encodes_again
            if is_mapped and encoder.inputs["checkpoint"] is start:
                add_mapped(graph, encoder, suffix, f"start{OTHER}{name}")
            index = add_index(graph, encoder, suffix, texts["collection"], texts["tokens"], exact)
            runs[run] = add_search(graph, encoder, f"search-{suffix}", index, JUDGED, texts)
        inputs = {"collection": texts["collection"], "bm25": None, **runs}
        measured[f"{ON}{name}"] = graph.add(f"evaluate{OTHER}{name}", "evaluate", config, **inputs)
    graph.add("others", "others", config, **measured)
