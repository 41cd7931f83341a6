"""BEIR folders: corpus.jsonl, queries.jsonl, qrels/{train,dev,test}.tsv, each plain or compressed."""

from pathlib import Path
from typing import Literal

from pipeline.collection import Source
from pipeline.config import Config
from pipeline.work import Progress


class BeirConfig(Config):
    """A folder in the layout of BEIR (Thakur et al. 2021, section 3)."""

    reader: Literal["beir"]
    """Names this reader."""
    folder: Path
    """Holds corpus.jsonl, queries.jsonl and qrels/, each file plain or with .gz, .xz or .zst."""
    document_key: str
    """Key of corpus.jsonl that names a passage's document, such as `doc`. Empty: each passage is a document."""


def missing(config: BeirConfig) -> list[str]:
    """Absent paths, each with the commands that would bring them."""
    raise NotImplementedError


def read(config: BeirConfig, progress: Progress) -> Source:
    """The folder's rows. A query that no qrels file judges has no split: it is left out and counted."""
    raise NotImplementedError
