"""The nodes of a recipe's flow, and what each of them reads. Start here."""

from dataclasses import replace
from pathlib import Path

from flows.builder import JUDGED, Graph, add_index, add_mapped, add_retrieval, add_search
from flows.other_collections import add_other_collections, add_others
from flows.recipes.command_line import command
from flows.recipes.recipe import Recipe, configuration
from pipeline.config import Config
from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig
from pipeline.cross_encoder.folds import Fold, divide
from pipeline.data.readers.text_config import TextConfig
from pipeline.evaluate.rows import fusion_rows
from pipeline.modeling.adopt import AdoptConfig
from pipeline.modeling.model_files.existing_model import tokenizer_folder
from tasks.node import Node


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
    add_dimensions(graph, model)
    add_results(graph)
    return list(graph.nodes.values())


def add_collection(graph: Graph) -> None:
    """The collection, its tokens and BM25, which most other nodes read."""
    recipe = graph.recipe
    ingest = graph.add("ingest", "ingest", recipe.ingest)
    tokenizer = graph.add("tokenizer", "tokenizer", recipe.tokenizer, collection=ingest)
    graph.add("tokens", "tokens", recipe.tokens, collection=ingest, tokenizer=tokenizer)
    graph.add("bm25", "bm25", recipe.bm25, collection=ingest)


def add_existing_model(graph: Graph, checkpoint: Path) -> Node:
    """An existing model that is searched and evaluated, as it is or adapted without questions. Returns the last one."""
    model = add_adopted(graph, "model", checkpoint, graph["tokenizer"])
    graph.trained["model"] = graph.encoders["model"] = model
    graph.runs["model"] = add_retrieval(graph, model, "model", JUDGED)
    return add_adaptation(graph, model, "model")


def add_adaptation(graph: Graph, model: Node, suffix: str) -> Node:
    """The model `model`, adapted without questions if the recipe says so, and its search. Returns the last model.

    `suffix`: of the nodes that encode and index the collection by `model`; their vectors are mapped, not encoded again,
    unless both encoders are trained.
    """
    recipe, ingest = graph.recipe, graph["ingest"]
    if recipe.adapt.queries is None:
        return model
    index = graph[f"index-{suffix}"]
    if recipe.index.dimension is not None:  # the adaptation learns from whole vectors
        whole = recipe.index.model_copy(update={"dimension": None})
        index = add_index(graph, model, f"{suffix}-uncut", ingest, graph["tokens"], whole, graph[f"encode-{suffix}"])
    inputs = {"collection": ingest, "checkpoint": model, "index": index, "bm25": graph["bm25"]}
    if recipe.adapt.encodes_again:  # add_retrieval then adds the stage `encode`
        adapted = graph.add("adapted", "adapt", recipe.adapt, "encoder", **inputs, tokens=graph["tokens"])
        shared = {**adapted.shared, "passage_tokens": recipe.encode.passage_tokens}
        adapted = graph.nodes["adapted"] = replace(adapted, shared=shared)
    else:
        adapted = graph.add("adapted", "adapt", recipe.adapt, "encoder", **inputs)
        add_mapped(graph, adapted, "adapted", suffix)
    graph.runs["adapted"] = add_retrieval(graph, adapted, "adapted", JUDGED)
    return adapted


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
    teachers = add_teachers(graph, pretrained) if recipe.teaches else {}
    soft_labels = pseudo_labels = None
    by_fusion = recipe.stage2.loss == "soft_labels" and recipe.fusion_labels is not None
    if recipe.labels_training_questions:
        student = next((graph.runs[name] for name in reversed(graph.runs) if name.startswith("stage")), None)
        inputs = {**graph.pair_texts, **teachers, "bm25": graph.bm25, "mined": mined, "run": student}
        soft_labels = graph.add(f"soft-labels{suffix}", "soft_labels", recipe.soft_labels, **inputs)
    if recipe.denoise is not None:
        mined = graph.add(f"denoise{suffix}", "denoise", recipe.denoise, mined=mined, soft_labels=soft_labels)
    if recipe.pseudo_labels is not None:
        inputs = {**graph.pair_texts, "run": run, **teachers}
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


def add_teachers(graph: Graph, pretrained: Node) -> dict[str, Node]:
    """The cross-encoder that labels, or one for each fold, by parameter."""
    section = graph.recipe.cross_encoder
    if section.folds is None:
        return {"cross_encoder": add_cross_encoder(graph, pretrained, "cross-encoder", section)}
    return {
        f"cross_encoder_{fold.number}": add_cross_encoder(
            graph, pretrained, f"cross-encoder-fold-{fold.number}", section, fold
        )
        for fold in divide(section.folds, section.seed)
    }


def add_ensemble(graph: Graph, pretrained: Node) -> dict[str, Node]:
    """The cross-encoders that rerank, by parameter: those of the folds, or an ensemble that differs in its seeds."""
    section, numbers = graph.recipe.cross_encoder, range(1, graph.recipe.ensemble + 1)
    if section.folds is not None:
        return add_teachers(graph, pretrained)  # none was trained on the questions that are reranked
    configs = {n: section.model_copy(update={"seed": section.seed + n - 1}) for n in numbers}
    names = {n: "cross-encoder" + (f"-{n}" if n > 1 else "") for n in numbers}
    return {f"cross_encoder_{n}": add_cross_encoder(graph, pretrained, names[n], configs[n]) for n in numbers}


def add_cross_encoder(
    graph: Graph, pretrained: Node, name: str, config: CrossEncoderConfig, fold: Fold | None = None
) -> Node:
    """The cross-encoder `name`, which is added once. `fold`: the part of the questions that it is trained without."""
    if name not in graph.nodes:
        # Of a finished one only the tokenizer is read besides its checkpoint.
        start = graph.get("tokenizer-cross-encoder") or graph.get("cross-initial") or pretrained
        inputs = {**graph.pair_texts, "start": start, "bm25": graph.bm25}
        mined = graph.get("negatives-file") or graph.get("mine")  # those of the first round
        node = graph.add(name, "cross_encoder", config, "train_subset", **inputs, mined=mined)
        if fold is not None:
            node = replace(node, shared={**node.shared, "fold": fold})
        graph.nodes[name] = graph.trained[name] = node
    return graph[name]


def add_rerank(graph: Graph) -> None:
    """The last dense run, reranked by the ensemble of cross-encoders."""
    recipe = graph.recipe
    if recipe.rerank is None or ("stage1" not in graph.runs and not recipe.rounds.number):
        return
    members = add_ensemble(graph, graph.encoders["pretrained"])
    inputs = {**graph.pair_texts, "run": list(graph.runs.values())[-1]}
    graph.runs["rerank"] = graph.add("rerank", "rerank", recipe.rerank, **inputs, **members)


def add_index_of_whole_texts(graph: Graph, model: Node) -> None:
    """What `cocondenser search` answers from, where questions were cut out of the texts that are evaluated."""
    recipe = graph.recipe
    if not isinstance(recipe.ingest, TextConfig) or not recipe.ingest.questions:
        return
    whole = graph.add("ingest-whole", "ingest", recipe.ingest.model_copy(update={"questions": ()}))
    tokens = graph.add("tokens-whole", "tokens", recipe.tokens, collection=whole, tokenizer=graph["tokenizer"])
    graph.add("bm25-whole", "bm25", recipe.bm25, collection=whole)
    add_index(graph, model, "whole", whole, tokens)


def add_dimensions(graph: Graph, model: Node) -> None:
    """`model`, searched and measured with each prefix of its vectors that it was trained for or that is indexed."""
    recipe, trained = graph.recipe, graph.recipe.encoder.dimensions
    if trained is None or model.stage != "finetune" or model.name not in graph.runs:
        return
    inputs = {}
    for dimension in sorted({*trained, recipe.index.dimension or trained[0]}, reverse=True):
        suffix = f"{model.name}-{dimension}d"
        cut = recipe.index.model_copy(update={"dimension": dimension if dimension < trained[0] else None})
        encode = graph[f"encode-{model.name}"]
        index = add_index(graph, model, suffix, graph["ingest"], graph["tokens"], cut, encode)
        inputs[f"index_{dimension}"] = index
        inputs[f"run_{dimension}"] = add_search(graph, model, f"search-{suffix}", index, JUDGED)
    config = recipe.evaluate.model_copy(update={"others": [], "systems": {}, "fusions": []})
    graph.add("dimensions", "dimensions", config, collection=graph["ingest"], **inputs)


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
        "dimensions": graph.get("dimensions"),
        **graph.trained,
    }
    whole_recipe = {"configuration": configuration(recipe), "command": command(recipe)}
    graph.nodes["report"] = Node("report", "report", recipe.report, inputs, whole_recipe)
