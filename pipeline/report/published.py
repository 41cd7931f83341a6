"""A paper's figures, which the report shows next to ours."""

from typing import Annotated, Literal

from pydantic import Field

from pipeline.config import Config
from pipeline.evaluate.measure_name import Measure


class Published(Config):
    row: str = Field(min_length=1)
    """Our system for comparison: bm25, pretrained, stage1, stage2, ... If the run lacks it, it is below the table."""
    label: str = Field(min_length=1)
    """The paper's name for it."""
    split: Literal["dev", "test"]
    measures: dict[Measure, Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)
    """{measure: share}: RR@10, nDCG@10, R@1000, ...; hits@5, hits@20, hits@100 by answers; 38.2 is 0.382."""
    source: str = Field(min_length=1)
    """Paper and table."""
