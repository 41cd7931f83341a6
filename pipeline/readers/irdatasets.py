"""Any dataset of the ir_datasets catalogue."""

from typing import Literal

from pydantic import Field

from pipeline.collection import Source
from pipeline.config import Config
from pipeline.work import Progress


class IrDatasetsConfig(Config):
    """Ids of the ir_datasets catalogue (MacAvaney et al. 2021), such as `beir/scifact` and `beir/scifact/train`."""

    reader: Literal["ir_datasets"]
    """Names this reader."""
    collection: str
    """Id whose documents are the passages."""
    train: str | None
    """Id whose queries and qrels are the training split."""
    dev: str | None
    """Id of the dev split."""
    test: str | None
    """Id of the test split."""
    negatives: str | None
    """Id whose docpairs (query, positive, negative) give negatives."""
    negatives_per_query: int = Field(ge=1)
    """The first so many distinct negatives of a query are kept."""


def missing(config: IrDatasetsConfig) -> list[str]:
    """Ids that are neither on this machine nor to be had."""
    raise NotImplementedError


def read(config: IrDatasetsConfig, progress: Progress) -> Source:
    """The dataset's rows. A query without a judgement is left out and counted."""
    raise NotImplementedError
