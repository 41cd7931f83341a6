"""A paper's own figures, which stand beside ours."""

from typing import Annotated, Literal

from pydantic import Field

from pipeline.config import Config
from pipeline.evaluate.measure_name import Measure


class Published(Config):
    row: str = Field(min_length=1)
    """Our system that it belongs to: bm25, pretrained, stage1, stage2, ... One that a run has not stands below."""
    label: str = Field(min_length=1)
    """What the paper calls it."""
    split: Literal["dev", "test"]
    measures: dict[Measure, Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)
    """By measure (RR@10, nDCG@10, R@1000, ...; hits@5, hits@20, hits@100 by answers), as shares: 38.2 is 0.382."""
    source: str = Field(min_length=1)
    """Paper and table."""
