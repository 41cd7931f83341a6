"""Random ids with real lengths, and untrained models: the benchmark needs no collection and no network.

Shapes: S sequences, N rows, Q questions, P passages.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from pipeline.modeling import transformer
from pipeline.modeling.biencoder import Encoder
from pipeline.runtime.work import Machine
from pipeline.tokenization.token_files import Ragged, Specials

LIMIT = 128
"""Tokens of a padded span or passage (coCondenser, section 4)."""
QUESTION, PASSAGE = (6, 14), (40, 128)
"""Least and most tokens of MS MARCO's questions and passages, special tokens included."""
LONG_QUESTION, LONG_PASSAGE = (8, 16), (120, 200)
"""The same of Natural Questions."""
DROPOUT = 0.1
HEAD_LAYERS = 2
SQUARED_NORM = 40.0
"""Of the vectors that untrained models give. The last LayerNorm's own weights give the dimension, 768: then scores
differ by tens, rounding decides which passage wins the softmax, and no two ways agree."""


class Size(NamedTuple):
    """How large the models and the batches are."""

    model: Mapping[str, int]
    """Fields of `BertConfig` that differ from BERT base's."""
    documents: int
    """Of a coCondenser update with the gradient cache."""
    graph_documents: int
    """Of a coCondenser update that keeps all graphs."""
    blocks: int
    """Sequences of a Condenser or RetroMAE update."""
    chunk: int
    """Sequences of a chunk of the published way."""
    questions: int
    """Of a large fine-tuning update."""
    untied_questions: int
    """Of a fine-tuning update like Natural Questions'."""
    pair_questions: int
    """Of a cross-encoder's update."""
    encoded: int
    """Passages that are encoded."""
    searched: int
    """Vectors that are searched."""
    queries: int
    """Questions that are searched for."""
    dimensions: int
    """Of a searched vector."""

    @property
    def vocabulary(self) -> int:
        return int(self.model.get("vocab_size", 30_522))

    def turn(self, updates: int) -> int:
        """Returns the updates of a turn: `updates` if the times shall be precise, otherwise 2."""
        return updates if self is BASE else 2

    @property
    def rounds(self) -> int:
        """Most turns of each way."""
        return 5 if self is BASE else 1


BASE = Size({}, 2048, 512, 1024, 128, 64, 128, 32, 20_000, 1_000_000, 2048, 768)
TINY_MODEL = {
    "vocab_size": 1000,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
SIZES = {"base": BASE, "tiny": Size(TINY_MODEL, 8, 4, 8, 4, 4, 4, 2, 60, 3000, 16, 32)}


def specials(size: Size) -> Specials:
    return Specials(vocab_size=size.vocabulary, pad=0, unk=1, cls=2, sep=3, mask=4)


def machine(device: str, **fields: Any) -> Machine:
    """Returns this process alone, with the fields' automatic values."""
    defaults: dict[str, Any] = {
        "ranks": 1,
        "torchrun": [],
        "threads": 1,
        "workers": 1,
        "token_budget": "auto",
        "gradient_cache_chunk": None,
        "gradient_cache": "auto",
        "tf32": False,
        "precision": "auto",
        "ray": None,
        "checkpoint_minutes": 60,
    }
    return Machine(**{"device": device, **defaults, **fields})


def span_lengths(sequences: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the lengths [S] of pairs of spans, special tokens not included: 60 % of the documents fill both spans."""
    pairs = sequences // 2
    full = LIMIT - 2
    return np.where(rng.random(pairs) < 0.6, full, rng.integers(16, full + 1, pairs)).repeat(2)


def texts(size: Size) -> Ragged:
    """Returns one long text, from which sequences are cut."""
    rng, number = np.random.default_rng(0), 3_000_000 if size is BASE else 60_000
    ids_T = rng.integers(5, size.vocabulary, number).astype(np.uint16)
    return Ragged(ids_T, np.array([0, number]), rng.random(number) < 0.75, None)


def rows(number: int, lengths: tuple[int, int], size: Size, seed: int) -> list[np.ndarray]:
    """Returns rows of int64 ids, `[CLS] ids [SEP]`, whose lengths are uniform between the two `lengths`."""
    rng, special = np.random.default_rng(seed), specials(size)
    length_N = rng.integers(lengths[0], lengths[1] + 1, number)
    return [
        np.concatenate(([special.cls], rng.integers(5, size.vocabulary, n - 2), [special.sep])).astype(np.int64)
        for n in length_N
    ]


def configuration(size: Size) -> BertConfig:
    fields: dict[str, Any] = {**size.model, "num_labels": 1}
    return BertConfig(**fields, hidden_dropout_prob=DROPOUT, attention_probs_dropout_prob=DROPOUT)


def language_model(size: Size, head_layers: int, device: str) -> nn.ModuleDict:
    """Returns {"lm", "head"} of random weights, in training mode."""
    torch.manual_seed(0)
    with torch.device(device):
        lm = BertForMaskedLM(configuration(size))
        module = nn.ModuleDict({"lm": lm, "head": transformer.new_head(lm, head_layers)})
    return small_vectors(module, lm.bert).train()


def encoder(size: Size, device: str, seed: int = 0) -> Encoder:
    """Returns an encoder of random weights, with CLS pooling, in training mode."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = BertModel(configuration(size), add_pooling_layer=False)
    return Encoder(small_vectors(model, model).train(), "cls")


def classifier(size: Size, device: str) -> Any:
    """Returns a cross-encoder of random weights for the listwise loss, which trains no last bias, in training mode."""
    torch.manual_seed(0)
    with torch.device(device):
        model = BertForSequenceClassification(configuration(size))
    model.classifier.bias.requires_grad_(False)
    return model.train()


def small_vectors(module: Any, base: Any) -> Any:
    """Returns `module` after giving the last LayerNorm of its backbone `base` smaller weights (SQUARED_NORM)."""
    weight = (SQUARED_NORM / base.config.hidden_size) ** 0.5
    nn.init.constant_(base.encoder.layer[-1].output.LayerNorm.weight, weight)
    return module
