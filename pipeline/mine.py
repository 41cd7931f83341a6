"""Hard negatives: what a trained retriever ranks high and nobody judged relevant (coCondenser, section 3.3)."""

from pathlib import Path

from pydantic import Field

from pipeline.config import Config
from pipeline.work import Metrics, Work


class MineConfig(Config):
    depth: int = Field(ge=1)
    """Best ranks of the run that are looked at, judged passages included. 200 (authors' code)."""
    number: int = Field(ge=1)
    """Negatives sampled from the pool of each question. 30 (authors' code)."""
    margin_absolute: float | None = Field(ge=0)
    """Only passages that score at least this much below the question's best judged passage. None: no such filter."""
    margin_relative: float | None = Field(gt=0, le=1)
    """Only passages that score at most this share of the best judged passage's score. None: no such filter."""
    seed: int = Field(ge=0)
    """Seed of the sampling."""


def mine(config: MineConfig, collection: Path, run: Path, work: Work) -> Metrics:
    """Write `negatives.parquet` for the training questions of the run; the metrics count what was dropped."""
    raise NotImplementedError
