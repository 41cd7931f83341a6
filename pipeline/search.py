"""Exact search: the best passages of each question, the same bytes for any threads, batches and blocks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from pipeline.config import Config
from pipeline.work import Metrics, Work


class SearchConfig(Config):
    splits: list[Literal["train", "dev", "test"]] = Field(min_length=1)
    """Splits whose questions are searched. Mining needs `train`."""
    depth: int = Field(ge=1)
    """Passages kept for each dev and test question. 1,000 for R@1000."""
    train_depth: int = Field(ge=1)
    """Passages kept for each training question: mining depth and a margin for judged passages among them."""
    question_tokens: int = Field(ge=4, le=512)
    """Tokens of a question's input, special tokens included. 32 in coCondenser, section 4."""


def search(config: SearchConfig, collection: Path, tokens: Path, checkpoint: Path, index: Path, work: Work) -> Metrics:
    """Write `run.parquet` and `run.trec`: the best passages of every question of `config.splits`."""
    raise NotImplementedError


def encode_text(checkpoint: Path, texts: Sequence[str], question_tokens: int) -> np.ndarray:
    """Vectors of questions that are not in the collection, float32 [questions, dimension]."""
    raise NotImplementedError


def top_k(questions_QD: np.ndarray, index: Path, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (int64) and scores (float32) of the best min(k, passages), both [questions, k], best first."""
    raise NotImplementedError
