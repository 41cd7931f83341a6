"""report.html: one page with the table, the pictures, examples and what it all was made from."""

from pathlib import Path

from pydantic import Field, JsonValue

from pipeline.config import Config
from pipeline.work import Metrics, Work


class ReportConfig(Config):
    title: str = Field(min_length=1)
    """The page's heading, such as the recipe's name."""
    examples: int = Field(ge=0)
    """Test questions shown with the answers of BM25 and of the dense retriever."""
    answers: int = Field(ge=1)
    """Answers shown for each example and system."""
    seed: int = Field(ge=0)
    """Seed that picks the examples."""
    configuration: dict[str, JsonValue]
    """The complete recipe as the flow resolved it, shown at the page's end. `{}` in recipes: the flow fills it."""


def report(
    config: ReportConfig,
    collection: Path,
    evaluate: Path,
    condenser: Path | None,
    cocondenser: Path | None,
    stage1: Path | None,
    stage2: Path | None,
    work: Work,
) -> Metrics:
    """Write `report.html` from an evaluation and the histories of the checkpoints. Equal inputs give equal bytes."""
    raise NotImplementedError
