"""The readers of a single source, by the name in a configuration's field `reader`."""

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
    """Returns one line for each missing input that cannot be downloaded now, with the commands to get it. Fast."""
    return READERS[config.reader].missing(config)


def sources(config: SingleConfig) -> dict[str, Path]:
    """Returns {name: path} of the files that enter the key in addition to the fields of type Path."""
    own = getattr(READERS[config.reader], "sources", None)
    return own(config) if own else {}


def read(config: SingleConfig, progress: Progress) -> Source:
    """Reads the rows of the source that `config` describes."""
    return READERS[config.reader].read(config, progress)


def with_section(line: str, fields: Iterable[str], section: str) -> str:
    """Replaces `ingest.FIELD` in a reader's line by `section.FIELD`: a reader does not know its section.

    The pattern skips paths with the same letters.
    """
    return re.sub(rf"(?<![\w./\\-])ingest\.(?=({'|'.join(fields)})\b)", f"{section}.", line)
