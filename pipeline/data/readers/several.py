"""Reads the passages of several sources as one pre-training corpus, such as general text and a study's collections."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.data.collection import Passage, Source
from pipeline.data.readers import single
from pipeline.notices import Examples, keep
from pipeline.runtime.work import Progress


class SeveralConfig(Config):
    reader: Literal["several"]
    """Selects this reader."""
    parts: list[single.PartConfig] = Field(min_length=1)
    """The sources in this order, each with its own reader. Their questions are left out; `metadata` must be empty, and
    `near_duplicates` null."""

    @model_validator(mode="after")
    def _no_metadata(self) -> Self:
        for n, part in enumerate(self.parts):
            if getattr(part, "metadata", None):
                raise ValueError(f"parts.{n}.metadata: several sources keep no metadata; set it to []")
            if part.near_duplicates is not None:
                raise ValueError(
                    f"parts.{n}.near_duplicates: passages for pre-training are not compared; set it to null"
                )
        return self


def missing(config: SeveralConfig) -> list[str]:
    """Returns a line for each missing input, with the part's number."""
    return [
        single.with_section(line, type(part).model_fields, f"ingest.parts.{n}")
        for n, part in enumerate(config.parts)
        for line in single.missing(part)
    ]


def sources(config: SeveralConfig) -> dict[str, Path]:
    """Returns what enters the key in addition to the parts' Path fields, by the part's number."""
    return {
        f"parts.{n}.{name}": path for n, part in enumerate(config.parts) for name, path in single.sources(part).items()
    }


def read(config: SeveralConfig, progress: Progress) -> Source:
    """Reads all passages, part by part; ids of passages and documents begin with the part's number, as in `0/`."""
    parts = [single.read(part, progress) for part in config.parts]
    counts: Counter[str] = Counter()
    examples: Examples = {}

    def passages() -> Iterator[tuple[str, Passage]]:
        for n, part in enumerate(parts):
            for place, row in part.passages():
                passage_id, doc_id = (f"{n}/{name}" if name else "" for name in (row.passage_id, row.doc_id))
                yield place, row._replace(passage_id=passage_id, doc_id=doc_id)
        counts.clear()
        examples.clear()
        for n, part in enumerate(parts):
            counts.update(part.counts)
            for name, first in part.examples.items():
                for example in first:
                    keep(examples, name, f"{n}/{example}")

    return Source(passages=passages, counts=counts, examples=examples)
