"""A small collection of made-up words, its tokens and a tiny model from scratch, as the earlier stages write them."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from crossed import make_cross_encoder, make_start
from machines import make_machine
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from pipeline.data.collection import schemas, write_table
from pipeline.data.runs import SCHEMA
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.token_files import Specials

WORDS = 300
SPECIALS = Specials(vocab_size=WORDS + 5, pad=0, unk=1, cls=2, sep=3, mask=4)
MACHINE = make_machine(token_budget=512)


@dataclass(frozen=True)
class World:
    """Folders of the artifacts that dense retrieval starts from."""

    collection: Path
    tokens: Path
    checkpoint: Path
    bm25: Path


def write_ragged(folder: Path, texts: list[str]) -> None:
    folder.mkdir(parents=True)
    ids = [[int(word[1:]) + 5 for word in text.split()] for text in texts]
    flat = np.array([i for one in ids for i in one], dtype=np.uint16)
    np.save(folder / "tokens.npy", flat)
    np.save(folder / "offsets.npy", np.cumsum([0, *map(len, ids)]))
    np.save(folder / "word_starts.npy", np.ones(len(flat), dtype=bool))


def make_world(folder: Path, documents: int = 60, train: int = 24) -> World:
    """Two passages a document, of words of its own and common ones; a question holds some of its document's words."""
    rng = np.random.default_rng(7)
    passages, queries, qrels, negatives = [], [], [], []
    for d in range(documents):
        own = [f"w{i}" for i in rng.integers(0, WORDS, 6)]
        for part in range(2):
            common = [f"w{i}" for i in rng.integers(0, WORDS, rng.integers(3, 40))]
            text = " ".join(rng.permutation([*own, *common]))
            passages.append((f"d{d}-{part}", f"d{d}", own[0] if d % 3 else "", text))
        split = "train" if d < train else "dev" if d % 2 else "test"
        queries.append((f"q{d}", split, " ".join(own[: rng.integers(2, 6)]), []))
        qrels += [(split, f"q{d}", f"d{d}-{part}", 1) for part in range(2)]
        others = rng.permutation([i for i in range(documents) if i != d])[:9]
        negatives += [(f"q{d}", f"d{o}-0", "bm25", rank, 9.0 - rank) for rank, o in enumerate(others, 1)]
    collection, tokens, checkpoint, bm25 = (folder / name for name in ("collection", "tokens", "checkpoint", "bm25"))
    collection.mkdir(parents=True)
    for name, rows in (("passages", passages), ("queries", queries), ("qrels", qrels)):
        write_table(collection / f"{name}.parquet", schemas()[name], rows)
    write_negatives(bm25 / "negatives.parquet", negatives)
    found = [
        ("dev", f"q{d}", f"d{(d + k) % documents}-0", k, 9.0 - k) for d in range(train, documents) for k in range(1, 9)
    ]
    write_table(bm25 / "run.parquet", SCHEMA, found)
    write_ragged(tokens / "passages", [row[3] for row in passages])
    write_ragged(tokens / "titles", [row[2] for row in passages])
    write_ragged(tokens / "queries", [row[2] for row in queries])
    np.save(tokens / "doc_offsets.npy", np.arange(0, len(passages) + 1, 2))
    (tokens / "specials.json").write_text(json.dumps(asdict(SPECIALS)))
    write_model(checkpoint, folder / "tokenizer")
    return World(collection, tokens, checkpoint, bm25)


def write_negatives(path: Path, rows: list[tuple]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    names = ["query_id", "passage_id", "source", "rank", "score"]
    columns = [list(column) for column in zip(*rows, strict=True)]
    types = [pa.string()] * 3 + [pa.int32(), pa.float32()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    pq.write_table(pa.table(arrays, names=names), path)


def write_model(folder: Path, tokenizer_folder: Path, dimension: int = 16, seed: int = 1) -> None:
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4} | {f"w{i}": i + 5 for i in range(WORDS)}
    raw = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    PreTrainedTokenizerFast(tokenizer_object=raw, **names).save_pretrained(tokenizer_folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=SPECIALS.vocab_size,
        hidden_size=dimension,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    save_checkpoint(folder, BertModel(config, add_pooling_layer=False), tokenizer_folder)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def pair_start(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world's checkpoint with a tokenizer that knows how pairs are written."""
    return make_start(world.checkpoint, tmp_path_factory.mktemp("pairs") / "start")


@pytest.fixture(scope="session")
def teacher(pair_start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained cross-encoder."""
    return make_cross_encoder(pair_start, tmp_path_factory.mktemp("teacher") / "cross")


@pytest.fixture
def work(tmp_path: Path) -> Callable[..., Work]:
    """work("name", ranks=2, ...): a fresh Work in its own folder; the fields override the machine's."""

    def make(name: str = "work", progress=silent, **machine) -> Work:
        out, checkpoints = tmp_path / name / "out", tmp_path / name / "checkpoints"
        out.mkdir(parents=True)
        checkpoints.mkdir()
        return Work(out, checkpoints, MACHINE.model_copy(update=machine), progress)

    return make


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs child functions in this process, one rank, for tests that are not about processes."""
    import importlib

    def launch(function, arguments, machine, progress, checkpoints, kept=0):
        module, name = function.split(":")
        return getattr(importlib.import_module(module), name)(progress=progress, device="cpu", **arguments)

    monkeypatch.setattr("pipeline.runtime.launch.launch", launch)


@pytest.fixture(scope="session")
def autoclass():
    """The name of a Java class -> the class. Java starts once in a process."""
    from pipeline.bm25.java import start_java

    return start_java()


@pytest.fixture(scope="session")
def faiss_searcher(autoclass):
    """pyserini's class."""
    from pyserini.search.faiss import FaissSearcher

    return FaissSearcher


@pytest.fixture(name="write_negatives")
def negatives_writer():
    return write_negatives


@pytest.fixture(name="write_model")
def model_writer():
    return write_model
