"""The whole flow: its nodes and what each one reads. Start here."""

from collections.abc import Iterable
from pathlib import Path

from flows.recipes.command_line import command
from flows.recipes.recipe import Recipe, configuration
from pipeline.config import Config
from pipeline.data.readers.text_config import TextConfig
from pipeline.evaluate.rows import fusion_rows
from pipeline.modeling.adopt import AdoptConfig
from tasks.node import Node


def nodes(recipe: Recipe) -> list[Node]:
    """The nodes of a recipe, each after everything that it reads."""
    r = recipe
    made: list[Node] = []

    def node(name: str, stage: str, config: Config, *shared: str, **inputs: Node | None) -> Node:
        made.append(Node(name, stage, config, inputs, {section: getattr(r, section) for section in shared}))
        return made[-1]

    ingest = node("ingest", "ingest", r.ingest)
    tokenizer = node("tokenizer", "tokenizer", r.tokenizer, collection=ingest)
    tokens = node("tokens", "tokens", r.tokens, collection=ingest, tokenizer=tokenizer)
    bm25 = node("bm25", "bm25", r.bm25, collection=ingest)

    def adopted(name: str, checkpoint: Path) -> Node:
        own = AdoptConfig(checkpoint=checkpoint, pooling=r.encoder.pooling, normalise=r.encoder.normalise)
        return node(name, "adopt", own, tokenizer=tokenizer)

    judged = ("dev", "test")
    runs: dict[str, Node] = {}
    trained: dict[str, Node] = {}
    encoders: dict[str, Node] = {}
    general = tokens

    def retrieval(model: Node, suffix: str, splits: Iterable[str]) -> Node:
        """The run of what `model` finds in the collection for the queries of `splits`."""
        asked = [s for s in r.search.splits if s in splits]
        approximate = None if r.index.kind == "flat" else r.search.approximate  # or its fields would change the key
        unjudged = r.search.unjudged_train_questions and "train" in asked
        own = {"splits": asked, "unjudged_train_questions": unjudged, "approximate": approximate}
        config = r.search.model_copy(update=own)
        encode = node(f"encode-{suffix}", "encode", r.encode, "encoder", tokens=tokens, checkpoint=model)
        index = node(f"index-{suffix}", "index", r.index, collection=ingest, embeddings=encode)
        inputs = {"collection": ingest, "tokens": tokens, "checkpoint": model, "index": index}
        return node(f"search-{suffix}", "search", config, "encoder", **inputs)

    def results(model: Node) -> list[Node]:
        """All nodes: at last what `search` answers from by `model`, the evaluation of `runs`, and the report."""
        if isinstance(r.ingest, TextConfig) and r.ingest.questions:  # these were cut out of the texts
            whole = node("ingest-whole", "ingest", r.ingest.model_copy(update={"questions": ()}))
            texts = node("tokens-whole", "tokens", r.tokens, collection=whole, tokenizer=tokenizer)
            node("bm25-whole", "bm25", r.bm25, collection=whole)
            encode = node("encode-whole", "encode", r.encode, "encoder", tokens=texts, checkpoint=model)
            node("index-whole", "index", r.index, collection=whole, embeddings=encode)
        fusion_rows(r.evaluate, ["bm25", *runs])  # an unknown run is told before anything is built
        evaluate = node("evaluate", "evaluate", r.evaluate, collection=ingest, bm25=bm25, **runs)
        attention = None
        if r.attention.sections:
            sections = general if r.attention.corpus == "pretraining" else tokens
            attention = node("attention", "attention", r.attention, tokens=sections, **encoders)
        read = {"collection": ingest, "evaluate": evaluate, "attention": attention, **trained}
        whole_recipe = {"configuration": configuration(r), "command": command(r)}
        made.append(Node("report", "report", r.report, read, whole_recipe))
        return made

    if r.model is not None:
        ready = trained["model"] = encoders["model"] = adopted("model", r.model)
        runs["model"] = retrieval(ready, "model", judged)
        return results(ready)

    # What is finished already (`checkpoint`) needs nothing of what it was made from.
    condenses = r.cocondenser.checkpoint is None and r.trains("condenser")
    if r.pretraining is not None and r.reads_general_text:
        other = node("ingest-pretraining", "ingest", r.pretraining)
        general = node("tokens-pretraining", "tokens", r.tokens, collection=other, tokenizer=tokenizer)
    texts = {"pretraining": general, "collection": tokens}
    first = general if r.initial.reads_passages else tokens
    pretrained: Node = node("initial", "initial", r.initial, "encoder", tokenizer=tokenizer, tokens=first)
    miner = from_file = None  # looked at before any training
    if r.rounds.miner is not None:
        miner = adopted("miner", r.rounds.miner)
    if r.negatives_file is not None:
        from_file = node("negatives-file", "negatives_file", r.negatives_file, collection=ingest)
    if r.trains("ict") and r.cocondenser.checkpoint is None:
        pretrained = node("ict", "ict", r.ict, tokens=texts[r.ict.corpus], start=pretrained)
        trained["ict"] = pretrained
    if condenses:
        pretrained = node("condenser", "condenser", r.condenser, tokens=general, start=pretrained)
        trained["condenser"] = pretrained
    if r.trains("cocondenser"):
        own = texts[r.cocondenser.corpus]
        pretrained = node("cocondenser", "cocondenser", r.cocondenser, tokens=own, start=pretrained)
        trained["cocondenser"] = pretrained

    def finetune(name: str, config: Config, start: Node, **given: Node | None) -> Node:
        data: dict[str, Node | None] = {"collection": ingest, "tokens": tokens, "start": start, "bm25": bm25}
        data |= {"mined": None, "soft_labels": None, "pseudo_labels": None} | given
        trained[name] = encoders[name] = node(name, "finetune", config, "encoder", "train_subset", **data)
        return trained[name]

    reads_mined = r.negatives_file is None or r.pseudo_labels is not None
    mines = r.rounds.number > 0 and r.rounds.miner is None and reads_mined
    encoders["pretrained"] = pretrained
    runs["pretrained"] = retrieval(pretrained, "pretrained", judged)
    newest = finetune("stage1", r.stage1, pretrained)
    if r.stage1.loss != "learning_to_rank":  # one order of the passages for every question: nothing to search
        runs["stage1"] = retrieval(newest, "stage1", ("train", *judged) if mines else judged)
    found = runs.get("stage1")
    if miner is not None:
        found = retrieval(miner, "miner", ("train",))

    def cross_encoder(number: int, mined: Node | None) -> Node:
        """The `number`-th of an ensemble, from 1: they differ in their seeds."""
        own = r.cross_encoder
        config = own.model_copy(update={"seed": own.seed + number - 1})
        data = {"collection": ingest, "tokens": tokens, "start": pretrained, "bm25": bm25, "mined": mined}
        name = "cross-encoder" + (f"-{number}" if number > 1 else "")
        trained[name] = node(name, "cross_encoder", config, "train_subset", **data)
        return trained[name]

    teachers: list[Node] = []
    first_hard: Node | None = None
    for number in range(1, r.rounds.number + 1):
        suffix = f"-{number}" if number > 1 else ""
        if number == 1 and from_file is not None:
            hard = from_file
        else:
            hard = node(f"mine{suffix}", "mine", r.mine, collection=ingest, run=found)
        first_hard, mined = first_hard or hard, hard
        soft_labels = pseudo_labels = None
        if r.teaches and not teachers:
            teachers.append(cross_encoder(1, hard))
        if r.stage2.loss == "soft_labels" or r.denoise is not None:
            read = {"collection": ingest, "tokens": tokens, "cross_encoder": teachers[0], "bm25": bm25}
            soft_labels = node(f"soft-labels{suffix}", "soft_labels", r.soft_labels, **read, mined=hard)
        if r.denoise is not None:
            mined = node(f"denoise{suffix}", "denoise", r.denoise, mined=hard, soft_labels=soft_labels)
        if r.pseudo_labels is not None:
            listed = {"collection": ingest, "tokens": tokens, "run": found, "cross_encoder": teachers[0]}
            pseudo_labels = node(f"pseudo-labels{suffix}", "pseudo_labels", r.pseudo_labels, **listed)
        # Stage 2 starts again from the pre-trained model, not from stage 1 (coCondenser, section 4).
        start = newest if number > 1 and r.rounds.start == "previous" else pretrained
        soft = soft_labels if r.stage2.loss == "soft_labels" else None
        newest = finetune(
            f"stage2{suffix}", r.stage2, start, mined=mined, soft_labels=soft, pseudo_labels=pseudo_labels
        )
        again = ("train", *judged) if number < r.rounds.number else judged
        found = runs[f"stage2{suffix}"] = retrieval(newest, f"stage2{suffix}", again)

    if r.rerank is not None and found is not None:
        teachers += [cross_encoder(n, first_hard) for n in range(len(teachers) + 1, r.ensemble + 1)]
        members = {f"cross_encoder_{n}": teacher for n, teacher in enumerate(teachers[: r.ensemble], 1)}
        dense = list(runs.values())[-1]
        runs["rerank"] = node("rerank", "rerank", r.rerank, collection=ingest, tokens=tokens, run=dense, **members)

    return results(newest if "stage1" in runs or r.rounds.number else pretrained)
