"""Ingest: any format in, a collection out."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipeline.readers import beir, dpr, huggingface, irdatasets, msmarco, pydocs, text
from pipeline.work import Metrics, Work

READERS = {
    "pydocs": pydocs,
    "beir": beir,
    "msmarco": msmarco,
    "dpr": dpr,
    "ir_datasets": irdatasets,
    "huggingface": huggingface,
    "text": text,
}

IngestConfig = Annotated[
    pydocs.PydocsConfig
    | beir.BeirConfig
    | msmarco.MarcoConfig
    | dpr.DprConfig
    | irdatasets.IrDatasetsConfig
    | huggingface.HuggingFaceConfig
    | text.TextConfig,
    Field(discriminator="reader"),
]


def missing(config: IngestConfig) -> list[str]:
    """What is neither on this machine nor to be had: a line each, with the commands that would bring it. Quick."""
    return READERS[config.reader].missing(config)


def sources(config: IngestConfig) -> dict[str, Path]:
    """{name: path} of files that are read though no field of type Path names them: their content enters the key."""
    return pydocs.sources(config) if isinstance(config, pydocs.PydocsConfig) else {}


def ingest(config: IngestConfig, work: Work) -> Metrics:
    """Write passages, queries, qrels and, where the source brings them, negatives as Parquet, and ingest.json."""
    raise NotImplementedError
