"""The readers of one source each, by the name that a configuration's `reader` gives."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipeline.collection import Source
from pipeline.readers import beir, dpr, huggingface, irdatasets, msmarco, pydocs, text
from pipeline.work import Progress

READERS = {
    "pydocs": pydocs,
    "beir": beir,
    "msmarco": msmarco,
    "dpr": dpr,
    "ir_datasets": irdatasets,
    "huggingface": huggingface,
    "text": text,
}

OneConfig = (
    pydocs.PydocsConfig
    | beir.BeirConfig
    | msmarco.MarcoConfig
    | dpr.DprConfig
    | irdatasets.IrDatasetsConfig
    | huggingface.HuggingFaceConfig
    | text.TextConfig
)
PartConfig = Annotated[OneConfig, Field(discriminator="reader")]


def missing(config: OneConfig) -> list[str]:
    """What is neither on this machine nor to be had: a line each, with the commands that would bring it. Quick."""
    return READERS[config.reader].missing(config)


def sources(config: OneConfig) -> dict[str, Path]:
    """{name: path} of what enters the key beside the content of the fields of type Path."""
    if isinstance(config, pydocs.PydocsConfig):
        return pydocs.sources(config)
    return text.sources(config) if isinstance(config, text.TextConfig) else {}


def read(config: OneConfig, progress: Progress) -> Source:
    """The rows of the source that `config` names."""
    return READERS[config.reader].read(config, progress)
