"""A run of a small model, stage by stage as the flow makes it, and in a store. Used by several test files."""

import importlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from crossed import make_roberta
from encoders import ENCODER
from machines import make_machine
from searched import CONFIG, build, write_collection
from transformers import BertConfig, BertModel

from artifacts import objects
from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.recipes.recipe import resolve
from pipeline.data.stored import read_json
from pipeline.dense.encode import encode
from pipeline.dense.index import index
from pipeline.dense.search import search
from pipeline.evaluate.evaluate import evaluate
from pipeline.export.source import Source
from pipeline.modeling.checkpoint import load_encoder, save_checkpoint
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_files.sentence_transformers_files import Dense, Vector
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.tokenizer import tokenizer
from pipeline.tokenization.tokens import tokens

WORDS = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon"),
)
DOCUMENTS = 60
PASSAGE_TOKENS = 40
RECIPE = resolve("tiny")
EVALUATE = RECIPE.evaluate.model_copy(
    update={"fusion_methods": ["reciprocal_rank"], "fusion_weights": [0.4], "bootstrap_samples": 100}
)
ENCODE = RECIPE.encode.model_copy(update={"passage_tokens": PASSAGE_TOKENS, "shard_passages": 30})
SEARCH = RECIPE.search.model_copy(update={"splits": ["dev", "test"], "depth": 20})
TOKENIZER = RECIPE.tokenizer.model_copy(update={"vocab_size": 300, "split_identifiers": False, "drop_rules": False})


@dataclass(frozen=True)
class Kind:
    """Of a model."""

    architecture: str = "bert"
    pooling: str = "cls"
    normalise: bool = False
    projection: int | None = None
    tied: bool = True
    encoder: EncoderConfig = ENCODER
    dimension: int | None = None
    """`index.dimension`."""


def encoder_of(kind: Kind) -> EncoderConfig:
    own = {name: getattr(kind, name) for name in ("pooling", "normalise", "projection", "tied")}
    return kind.encoder.model_copy(update=own)


def make_run(folder: Path, kind: Kind) -> dict[str, Path]:
    """The artifacts' folders by node: a model that was never trained, all else as the stages make it."""
    folder.mkdir()
    nodes = {"ingest": _collection(folder / "ingest")}

    def work(node: str) -> Work:
        out, checkpoints = folder / node, folder / f"{node}-checkpoints"
        out.mkdir()
        checkpoints.mkdir()
        nodes[node] = out
        return Work(out, checkpoints, make_machine(token_budget=512), silent)

    collection = nodes["ingest"]
    if kind.architecture == "roberta":
        own = make_roberta(folder / "roberta", [" ".join(WORDS)] * 5)
    else:
        tokenizer(TOKENIZER, collection, work("tokenizer"))
        own = nodes["tokenizer"]
    tokens(RECIPE.tokens, collection, own, work("tokens"))
    nodes["stage1"] = _checkpoint(folder / "stage1", own, kind)
    shape = encoder_of(kind)
    with _in_this_process():
        encode(ENCODE, shape, nodes["ingest"], nodes["tokens"], nodes["stage1"], work("encode-stage1"))
        config = RECIPE.index.model_copy(update={"dimension": kind.dimension})
        index(config, collection, nodes["encode-stage1"], work("index-stage1"), normalise=kind.normalise)
        inputs = (collection, nodes["tokens"], nodes["stage1"], nodes["index-stage1"])
        search(SEARCH, shape, *inputs, work("search-stage1"))
    given = folder / "first.trec"
    found = ((n, f"p{n}b", f"p{(n + 1) % DOCUMENTS}a") for n in range(DOCUMENTS))
    given.write_text("".join(f"q{n} Q0 {first} 1 2.0 x\nq{n} Q0 {second} 2 1.0 x\n" for n, first, second in found))
    nodes["bm25"] = folder / "bm25"
    build(collection, nodes["bm25"], CONFIG.model_copy(update={"run": given}), workers=1)
    evaluate(EVALUATE, collection, nodes["bm25"], work("evaluate"), stage1=nodes["search-stage1"])
    return nodes


def make_store(nodes: dict[str, Path], root: Path, encoder: EncoderConfig) -> Store:
    """A store with one finished run, `one`, of copies of these artifacts."""
    import shutil

    store = Store(root)
    store.prepare()
    refs = {}
    for node, path in nodes.items():
        made = Path(shutil.copytree(path, root / "new"))
        digest, _ = objects.seal(made)
        made.rename(store.objects / digest)
        refs[node] = Ref(node.partition("-")[0], digest, digest, digest, store.objects / digest, {})
    recipe = {
        "bm25": CONFIG.model_dump(mode="json"),
        "encoder": encoder.model_dump(),
        "encode": ENCODE.model_dump(),
        "evaluate": EVALUATE.model_dump(),
        "search": SEARCH.model_dump(),
        "example_question": "what's alpha's beta?",
    }
    record_run(store, "one", refs, {"recipe": recipe})
    return store


def source_of(nodes: dict[str, Path], encoder: EncoderConfig, dimension: int | None = None) -> Source:
    from pipeline.evaluate.fusion.fuse import Choice

    return Source(
        recipe="one",
        model="stage1",
        checkpoint=nodes["stage1"],
        encoder=encoder,
        passage_tokens=PASSAGE_TOKENS,
        collection=nodes["ingest"],
        tokens=nodes["tokens"],
        relevance=1,
        index=nodes["index-stage1"],
        served=nodes["index-stage1"],
        served_collection=nodes["ingest"],
        runs={"run": nodes["search-stage1"], "bm25": nodes["bm25"]},
        fusion=Choice("reciprocal_rank", 0.4),
        best_three_share=0,
        dimension=dimension,
        reciprocal_k=60,
        question="what's alpha's beta?",
        system="stage1",
        metrics=read_json(nodes["evaluate"] / "metrics.json"),
        settings={"title": "One <b>title</b>", "stage1": RECIPE.stage1.model_dump(mode="json")},
        command=["cocondenser", "run", "one", "--set", "ingest.path=PATH/my notes"],
        artifacts={node: f"{n:x}" * 64 for n, node in enumerate(nodes)},
    )


def _collection(folder: Path) -> Path:
    """Two passages a document; some titles empty, one long, and texts with special tokens in them."""
    draw = random.Random(3)
    passages, queries, judged = [], [], []
    for n in range(DOCUMENTS):
        own = draw.sample(WORDS, 4)
        title = "" if n % 3 == 0 else " ".join(draw.sample(WORDS, 12 if n == 10 else 2))
        for part in "ab":
            text = " ".join([*own, *draw.choices(WORDS, k=draw.randint(2, 50))])
            passages.append((f"p{n}{part}", f"d{n}", title, text + " [SEP] [MASK]" * (n == 4)))
        split = ("train", "dev", "test")[n % 3]
        queries.append((f"q{n}", split, " ".join(own[:3] * (20 if n == 7 else 1)) + " [CLS]" * (n == 8)))
        judged.append((split, f"q{n}", f"p{n}a", 1))
    return write_collection(folder, passages, queries, judged)


def _checkpoint(folder: Path, tokenizer_folder: Path, kind: Kind) -> Path:
    def model(seed: int):
        torch.manual_seed(seed)
        if kind.architecture == "roberta":
            own = load_encoder(tokenizer_folder)
            for parameter in own.parameters():
                parameter.data += 0.01 * torch.randn_like(parameter)
            return own
        config = BertConfig(
            vocab_size=300,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
        return BertModel(config, add_pooling_layer=False).eval()

    for seed, side in enumerate([""] if kind.tied else ["query", "passage"]):
        made = model(seed)
        dense = None
        if kind.projection:
            weight_ED = torch.randn(kind.projection, made.config.hidden_size)
            dense = Dense(weight_ED, torch.randn(kind.projection), "Tanh")
        prefixes = kind.encoder.question_prefix, kind.encoder.passage_prefix
        vector = Vector(kind.pooling, kind.normalise, dense, *prefixes)
        save_checkpoint(folder / side, made, tokenizer_folder, vector=vector)
    return folder


@contextmanager
def _in_this_process() -> Iterator[None]:
    def launch(function, arguments, machine, progress, checkpoints, kept=0):
        module, name = function.split(":")
        return getattr(importlib.import_module(module), name)(progress=progress, device="cpu", **arguments)

    with mock.patch("pipeline.runtime.launch.launch", launch):
        yield
