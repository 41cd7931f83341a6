"""The passages of several sources as one text to pre-train on, such as general text and the collections of a study."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.collection import Passage, Source
from pipeline.config import Config
from pipeline.readers import known
from pipeline.work import Progress


class SeveralConfig(Config):
    reader: Literal["several"]
    """Names this reader."""
    parts: list[known.PartConfig] = Field(min_length=1)
    """The sources, each by a reader of its own, in this order. Their questions are left out."""


def missing(config: SeveralConfig) -> list[str]:
    """What each part lacks, a line each, with the part's place."""
    return [
        line.replace("ingest.", f"ingest.parts.{n}.", 1)
        for n, part in enumerate(config.parts)
        for line in known.missing(part)
    ]


def sources(config: SeveralConfig) -> dict[str, Path]:
    """What enters the key beside the parts' Path fields, by the part's number."""
    return {
        f"parts.{n}.{name}": path for n, part in enumerate(config.parts) for name, path in known.sources(part).items()
    }


def read(config: SeveralConfig, progress: Progress) -> Source:
    """All parts' passages, part by part; ids of passages and documents begin with the part's number, as in `0/`."""
    parts = [known.read(part, progress) for part in config.parts]
    counts: Counter[str] = Counter()

    def passages() -> Iterator[tuple[str, Passage]]:
        for n, part in enumerate(parts):
            for place, row in part.passages():
                document = f"{n}/{row.doc_id}" if row.doc_id else ""
                yield place, row._replace(passage_id=f"{n}/{row.passage_id}", doc_id=document)
        counts.clear()
        for part in parts:
            counts.update(part.counts)

    return Source(passages=passages, counts=counts)
