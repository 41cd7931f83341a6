"""A small tokenizer, trained on the passages of a collection."""

from pathlib import Path
from typing import Any

from machines import make_machine

from pipeline.runtime.work import Metrics, Work, silent
from pipeline.tokenization.tokenizer import TokenizerConfig, tokenizer

TRAINED: dict[str, Any] = {
    "pretrained": None,
    "revision": "main",
    "path": None,
    "vocab_size": 600,
    "lowercase": True,
    "split_identifiers": True,
    "drop_rules": True,
}


def train_tokenizer(collection: Path, out: Path, **fields: Any) -> Metrics:
    """The stage's artifact in a new folder `out`, with `fields` instead of those of TRAINED."""
    out.mkdir()
    return tokenizer(TokenizerConfig(**{**TRAINED, **fields}), collection, Work(out, out, make_machine(), silent))
