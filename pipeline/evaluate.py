"""Measures of every run on dev and test, with intervals, and the fusion of BM25 with the dense retriever."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pipeline.config import Config
from pipeline.work import Metrics, Work


class EvaluateConfig(Config):
    relevance: int = Field(ge=1)
    """Least judgement that is relevant in binary measures (1; TREC Deep Learning: 2). nDCG takes the grades."""
    fusion_methods: list[Literal["reciprocal_rank", "weighted_sum"]] = Field(min_length=1)
    """How BM25 and dense lists may be joined; the best by MRR@10 on dev is taken."""
    fusion_weights: list[Annotated[float, Field(gt=0, lt=1)]] = Field(min_length=1)
    """Shares of BM25 that are tried on dev; the rest is the dense retriever's."""
    reciprocal_k: float = Field(gt=0)
    """k in weight / (k + rank): 60 in Cormack, Clarke and Buettcher (2009)."""
    bootstrap_samples: int = Field(ge=100)
    """Resamples of the questions for each 95 % interval."""
    seed: int = Field(ge=0)
    """Seed of the resamples."""
    answers: int = Field(ge=1, le=100)
    """Passages of each question and system that are kept beside the measures, for the report."""


def evaluate(
    config: EvaluateConfig,
    collection: Path,
    bm25: Path,
    pretrained: Path | None,
    stage1: Path | None,
    stage2: Path | None,
    work: Work,
) -> Metrics:
    """Write `metrics.json`, `per_query.parquet` and `answers.parquet` for the runs in the given folders."""
    raise NotImplementedError
