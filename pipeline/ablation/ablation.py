"""The end of an ablation: the table of all rows with intervals and tests, and a page with its curves."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pipeline.config import Config, Seed
from pipeline.data.stored import read_table
from pipeline.evaluate.measure_name import Measure
from pipeline.evaluate.significance import Test
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from pipeline.ablation.data import AblationData

Negatives = Literal["none", "bm25", "mined", "fusion"]
"""What a column shows, in the tables' order: the model before fine-tuning, after stage 1, after the last stage 2, and
BM25 joined with the last of these."""
UNTUNED: Negatives = "none"
"""The column that hangs on no training questions and no seed of fine-tuning."""

SEEDED = tuple(f"{stage}.{field}" for stage in ("stage1", "stage2") for field in ("seed", "optimiser.seed"))
"""Fields of the recipe that an ablation's seed gives."""


class CellConfig(Config):
    """A model that was trained and measured."""

    row: str
    size: int | None
    """Training questions; None: all."""
    seed: Seed
    """Of fine-tuning."""
    systems: dict[Negatives, str]
    """The evaluation's runs by column. `none` is of one of a row's cells: fine-tuning does not change it."""
    epochs: int = Field(ge=1)
    """Of stage 1, for its curves."""
    command: list[str]
    """The words of the command that makes it alone, for the page."""
    start: str | None
    """The row whose pre-trained model it goes on from, for the page."""


class AblationConfig(Config):
    title: str = Field(min_length=1)
    """The page's heading."""
    reference: str
    """The row that the others are tested against."""
    measures: list[Measure] = Field(min_length=1)
    """What the table and the page show; the files have all measures of the evaluation."""
    test: Test
    """Of differences, paired by question (pipeline/evaluate/significance.py)."""
    samples: int = Field(ge=100, le=1_000_000)
    """Resamples of the questions, for intervals over several seeds, of differences, and the randomisation test."""
    seed: Seed
    """Of the resamples."""
    cells: list[CellConfig] = Field(min_length=1)
    """In the table's order; the evaluation of cell n is the input `evaluate_n`."""


def ablation(config: AblationConfig, collection: Path, work: Work, **given: Path | None) -> Metrics:
    """Write all that `render` does.

    `given`: `evaluate_n` of each cell n, and of those whose curves are drawn `stage1_n` (a checkpoint with its history)
    and `attention_n`. Raises InputError where cells were measured on other questions than the first.
    """
    from pipeline.ablation import data as ablation_data

    return render(ablation_data.collect(config, collection, given, work.progress), work.out)


def render(data: "AblationData", out: Path) -> Metrics:
    """Write `table.json`, `table.csv`, `table.md`, `tests.json`, `gains.json`, `ablation.html`, its
    `pictures/NAME.png`, and the data that all these are made of (pipeline/ablation/files.py) into a folder that is
    there."""
    import pandas as pd

    from pipeline.ablation import files, table
    from pipeline.ablation import page as ablation_page
    from pipeline.ablation.gains import gains
    from pipeline.report.figures import write_pngs

    files.write(data, out)
    figures, tests, gained = table.figures(data), table.tests(data), gains(data)
    (out / "table.json").write_text(_json(figures), encoding="utf-8")
    (out / "tests.json").write_text(_json(tests), encoding="utf-8")
    (out / "gains.json").write_text(_json(gained), encoding="utf-8")
    frame = pd.DataFrame(figures)
    whole = [name for name in ("size", "seed", "cut_at") if name in frame]
    frame.astype(dict.fromkeys(whole, "Int64")).to_csv(out / "table.csv", index=False)
    (out / "table.md").write_text(table.markdown(data.config, figures, tests), encoding="utf-8")
    page, pictures = ablation_page.page(data, figures, tests, gained)
    (out / "ablation.html").write_text(page, encoding="utf-8", newline="\n")
    write_pngs(out, pictures)
    return table.flat(data.config, figures)


def training_questions(collection: Path) -> int:
    """Those with a relevant passage: what a cell of all questions is trained on."""
    train = [("split", "=", "train"), ("relevance", ">=", 1)]
    return len(read_table(collection / "qrels.parquet", ["query_id"], train)["query_id"].unique())


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
