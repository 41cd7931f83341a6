"""The readers of one source each, by the name that a configuration's `reader` gives."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipeline.data.collection import Source
from pipeline.data.readers import beir, dpr, huggingface, irdatasets, msmarco, pydocs, text
from pipeline.data.readers.text_config import TextConfig
from pipeline.runtime.work import Progress

READERS = {
    "pydocs": pydocs,
    "beir": beir,
    "msmarco": msmarco,
    "dpr": dpr,
    "ir_datasets": irdatasets,
    "huggingface": huggingface,
    "text": text,
}

SingleConfig = (
    pydocs.PydocsConfig
    | beir.BeirConfig
    | msmarco.MarcoConfig
    | dpr.DprConfig
    | irdatasets.IrDatasetsConfig
    | huggingface.HuggingFaceConfig
    | TextConfig
)
PartConfig = Annotated[SingleConfig, Field(discriminator="reader")]


def missing(config: SingleConfig) -> list[str]:
    """What is neither on this machine nor to be had: a line each, with the commands that would bring it. Quick."""
    return READERS[config.reader].missing(config)


def sources(config: SingleConfig) -> dict[str, Path]:
    """{name: path} of what enters the key beside the content of the fields of type Path."""
    own = getattr(READERS[config.reader], "sources", None)
    return own(config) if own else {}


def read(config: SingleConfig, progress: Progress) -> Source:
    """The rows of the source that `config` names."""
    return READERS[config.reader].read(config, progress)


def placed(line: str, fields: Iterable[str], section: str) -> str:
    """`ingest.FIELD` in a reader's line as `section.FIELD`: a reader does not know which section it serves.

    A path may hold the same letters.
    """
    return re.sub(rf"(?<![\w./\\-])ingest\.(?=({'|'.join(fields)})\b)", f"{section}.", line)
