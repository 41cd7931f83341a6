"""Lucene's BM25 through pyserini: the baseline run and the first negatives. Java lives in a process of its own."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from pipeline.config import Config
from pipeline.work import Metrics, Work


class BM25Config(Config):
    k1: float = Field(ge=0)
    """Saturation of term frequency. Lucene's and Anserini's default is 0.9."""
    b: float = Field(ge=0, le=1)
    """Share of length normalisation. Anserini's default is 0.4."""
    titles: int = Field(ge=0, le=10)
    """Times that the title stands before the text in what is indexed (a weight on its terms). 0: text alone."""
    stemmer: Literal["porter", "krovetz", "none"]
    """Stemmer of Anserini's English analyser, for passages and questions alike."""
    depth: int = Field(ge=1, le=10_000)
    """Passages kept for each dev and test question."""
    negatives_depth: int = Field(ge=1, le=10_000)
    """Passages kept for each training question. What is not judged relevant becomes its BM25 negatives."""


def bm25(config: BM25Config, collection: Path, work: Work) -> Metrics:
    """Index the collection, search all questions, keep the training questions' negatives.

    Writes `index/`, `run.parquet`, `run.trec` and `negatives.parquet`. Training questions without a judged passage are
    not searched: nothing would be trained on them.
    """
    raise NotImplementedError


class Searcher:
    """Answers single questions from the `index/` folder of a bm25 artifact, in a process of its own.

    `with Searcher(artifact / "index", config.k1, config.b, config.stemmer) as searcher: searcher.search(text, 10)`.
    Loading (about 8 s) goes on in the background; the first `search` waits for it.
    """

    def __init__(self, index: Path, k1: float, b: float, stemmer: str) -> None:
        raise NotImplementedError

    def search(self, text: str, k: int) -> list[tuple[str, float]]:
        """The best `k` as (passage id, score), best first."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        raise NotImplementedError
