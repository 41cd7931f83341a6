"""DPR's files: psgs_w100.tsv and questions with their contexts."""

from pathlib import Path
from typing import Literal

from pipeline.collection import Source
from pipeline.config import Config
from pipeline.work import Progress


class DprConfig(Config):
    """Files of DPR's release (Karpukhin et al. 2020), plain or compressed."""

    reader: Literal["dpr"]
    """Names this reader."""
    passages: Path
    """psgs_w100.tsv (id, text, title; with a header): Wikipedia in passages of 100 words."""
    train: Path | None
    """Questions: .json (question, answers, positive_ctxs, hard_negative_ctxs) or .csv (question, list of answers)."""
    dev: Path | None
    """As `train`."""
    test: Path | None
    """As `train`. DPR gives test questions as .csv."""


def missing(config: DprConfig) -> list[str]:
    """Absent paths, each with the commands that would bring them."""
    raise NotImplementedError


def read(config: DprConfig, progress: Progress) -> Source:
    """The files' rows. Neighbouring passages of one title are one document."""
    raise NotImplementedError
