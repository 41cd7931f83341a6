"""A small collection, its BM25 index, a model from scratch and its vectors; and how it is adapted."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import encoders
import numpy as np
import pytest
import torch
from indexes import write_flat_index
from ready import WORDS, plain, theirs
from searched import build, machine, write_collection

from artifacts import objects
from pipeline.adapt.config import AdaptConfig, BothEncodersConfig, QueryEncoderConfig
from pipeline.dense import shard_reuse
from pipeline.modeling.checkpoint import load_encoder, save_checkpoint
from pipeline.modeling.model_files.sentence_transformers_files import Vector
from pipeline.notices import read_notices
from pipeline.runtime.work import Metrics, Work, silent
from pipeline.tokenization.tokens import TokensConfig, tokens

OPTIMISER = encoders.OPTIMISER.model_copy(update={"learning_rate": 1e-3})
CONFIG = AdaptConfig(
    queries=40,
    lead_words=6,
    keyword_words=(2, 4),
    depth=20,
    candidates=8,
    trains="map",
    temperature=0.05,
    steps=30,
    batch_queries=16,
    learning_rate=5e-3,
    l2=0.0,
    query_encoder=QueryEncoderConfig(steps=60, optimiser=OPTIMISER),
    both_encoders=BothEncodersConfig(steps=60, batch_queries=16, candidates=8, optimiser=OPTIMISER),
    merge=1.0,
    guard_queries=20,
    guard_words=(3, 5),
    guard_p=0.01,
    seed=4,
)
LEARNABLE = {"queries": 120, "candidates": 20, "temperature": 0.2, "guard_queries": 100, "guard_p": 0.5}
EASY = CONFIG.model_copy(update=LEARNABLE)
"""Enough to learn from, and a guard that nearly any gain satisfies."""
OTHER = {"pooling": "mean", "normalise": True, "question_tokens": 24, "title_tokens": 8, "title_separator": "space"}
ENCODER = encoders.ENCODER.model_copy(update=OTHER)


@dataclass(frozen=True)
class Corpus:
    """Folders of artifacts."""

    collection: Path
    checkpoint: Path
    index: Path
    bm25: Path
    tokens: Path
    vectors_ND: np.ndarray
    """Of the passages; float16 numbers."""


def make_corpus(folder: Path) -> Corpus:
    rng = np.random.default_rng(1)
    passages = []
    for n in range(60):
        words = [WORDS[i] for i in rng.integers(0, len(WORDS), 12)]
        title = " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), 3)) if n % 2 else ""
        passages.append((f"p{n}", f"d{n}", title, f"{' '.join(words[:5])}. {' '.join(words[5:])}"))
    collection = write_collection(folder / "collection", passages, [("q", "test", "ledger")], [("test", "q", "p0", 1)])
    build(collection, folder / "bm25")
    bag_of_words(folder / "checkpoint")
    vectors_ND = theirs(folder / "checkpoint", "document", [f"{title} {text}" for *_, title, text in passages])
    vectors_ND = vectors_ND.astype(np.float16).astype(np.float32)
    model = shard_reuse.model(folder / "checkpoint")
    write_flat_index(folder / "index", vectors_ND, [f"p{n}" for n in range(60)], model)
    (folder / "tokens").mkdir()
    work = Work(folder / "tokens", folder / "none", machine(1), silent)
    tokens(TokensConfig(max_tokens=None), collection, folder / "checkpoint", work)
    return Corpus(collection, folder / "checkpoint", folder / "index", folder / "bm25", folder / "tokens", vectors_ND)


def with_two_encoders(corpus: Corpus, folder: Path) -> Corpus:
    """The corpus with a model of two encoders, which start equal."""
    checkpoint, index = folder / "untied", folder / "index"
    for side in ("query", "passage"):
        shutil.copytree(corpus.checkpoint, checkpoint / side)
    shutil.copytree(corpus.index, index)
    said = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps({**said, "model": shard_reuse.model(checkpoint)}))
    return replace(corpus, checkpoint=checkpoint, index=index)


def bag_of_words(folder: Path) -> Path:
    """A model that the guard accepts once it is adapted with EASY.

    Its layers change nothing, so that a text's vector is the mean of its words'. Three dimensions outweigh the others:
    a linear map can learn to weigh all words alike, as BM25 does.
    """
    start = plain(folder.with_name(f"{folder.name}-start"))
    model = load_encoder(start)
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.zero_()
        model.embeddings.token_type_embeddings.weight.zero_()
        model.embeddings.word_embeddings.weight[:, :3] *= 8
        for layer in model.encoder.layer:
            for last in (layer.attention.output.dense, layer.output.dense):
                last.weight.zero_()
                last.bias.zero_()
    save_checkpoint(folder, model, start, vector=Vector("mean", normalise=True))
    return folder


def check_learned(metrics: Metrics) -> None:
    """The model is nearer to the teacher, and the guard accepts it and says so."""
    assert metrics["used"] == "yes"
    assert metrics["divergence_after"] < metrics["divergence_before"]
    assert metrics["agreement_after"] > metrics["agreement_before"]
    (line,) = read_notices(metrics)
    assert line.startswith("adapted model used: on ")


class KilledError(Exception):
    pass


def check_resumes(build: Callable[[Work], Metrics], work: Callable[..., Work]) -> None:
    """A training that was killed after 20 updates gives the bytes of one that was not."""
    whole = work("whole")
    metrics = build(whole)

    def kill(done: int, total: int | None, unit: str, numbers: object = None) -> None:
        if unit == "updates" and done == 20:
            raise KilledError

    killed = work("killed", progress=kill, checkpoint_minutes=0)
    with pytest.raises(KilledError):
        build(killed)
    assert list(killed.checkpoints.iterdir())
    again = Work(killed.out, killed.checkpoints, killed.machine, whole.progress)
    assert build(again) == metrics
    assert objects.seal(again.out)[0] == objects.seal(whole.out)[0]
