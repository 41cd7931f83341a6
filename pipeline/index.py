"""The vectors as a FAISS index that pyserini's `FaissSearcher` reads."""

from pathlib import Path
from typing import Literal

from pipeline.config import Config
from pipeline.work import Metrics, Work


class IndexConfig(Config):
    kind: Literal["flat"]
    """`flat`: exact inner products (IndexFlatIP)."""


def index(config: IndexConfig, collection: Path, embeddings: Path, work: Work) -> Metrics:
    """Write `index` (FAISS) and `docid` (a passage id a line), in passage order."""
    raise NotImplementedError
