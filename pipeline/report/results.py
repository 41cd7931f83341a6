"""The tables of results: our figures, the papers' figures, and differences."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline.config import Config
from pipeline.evaluate.config import Measure
from pipeline.evaluate.significance.paired import is_significant
from pipeline.evaluate.tables.others_table import others_table, worse_sentences
from pipeline.evaluate.tables.short_tables import TABLE, shallow_notes
from pipeline.formatting import counted, estimate_text, p_text, share_text

HEADS = {**TABLE, "RR@100": "MRR@100", "AP": "MAP"}
"""Usual names of the means of measures that have another name here."""
LEADS = {"judged": "RR@10", "answers": "hits@20"}
"""The main measure of a table."""

Figures = Mapping[str, Mapping[str, float]]
"""{measure: {mean, low, high}}"""


class Published(Config):
    """A paper's figures, which the report shows next to ours."""

    row: str = Field(min_length=1)
    """Our system for comparison: bm25, pretrained, stage1, stage2, ... If the run lacks it, it is below the table."""
    label: str = Field(min_length=1)
    """The paper's name for it."""
    split: Literal["dev", "test"]
    measures: dict[Measure, Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)
    """{measure: share}: RR@10, nDCG@10, R@1000, ...; hits@5, hits@20, hits@100 by answers; 38.2 is 0.382."""
    source: str = Field(min_length=1)
    """Paper and table."""


@dataclass(frozen=True)
class SplitMeasures:
    """The measures of a split, by qrels or by answer strings."""

    split: str
    kind: str
    """`judged` or `answers`."""
    questions: int
    systems: Mapping[str, Figures]
    columns: tuple[str, ...]
    """Measures of its table."""
    differences: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """{pair, such as `stage2 - bm25`: figures}."""
    without_results: Mapping[str, int] = field(default_factory=dict)
    without_relevant: int = 0
    published: tuple[Published, ...] = ()

    @property
    def lead(self) -> str:
        """The measure of the headline: the usual one, unless only other measures were published."""
        named = [m for m in self.columns if any(m in row.measures for row in self.published)]
        usual = LEADS[self.kind]
        return usual if usual in (named or self.columns) else (named or self.columns)[0]

    @property
    def head(self) -> str:
        return HEADS.get(self.lead, self.lead)


def split_measures(metrics: Mapping[str, Any], published: Sequence[Published]) -> list[SplitMeasures]:
    """Returns all parts, test before dev; the part with published figures and the most questions comes first.

    Empty if there were no questions to measure with.
    """
    every = []
    for split in [name for name in ("test", "dev") if name in metrics["splits"]]:
        figures = metrics["splits"][split]
        of_split = [row for row in published if row.split == split]
        if figures.get("systems"):
            every.append(_part(split, "judged", figures, of_split))
        if figures.get("answers"):
            every.append(_part(split, "answers", figures["answers"], of_split))
    published_ones = [part for part in every if part.published] or every[:1]
    first = max(published_ones, key=lambda part: part.questions, default=None)
    return [*(part for part in every if part is first), *(part for part in every if part is not first)]


def _part(split: str, kind: str, figures: Mapping[str, Any], published: Sequence[Published]) -> SplitMeasures:
    measured = [*next(iter(figures["systems"].values()))]
    named = {measure for row in published for measure in row.measures}
    columns = [m for m in measured if kind == "answers" or m in TABLE or m in named]
    columns.sort(
        key=lambda m: [*TABLE].index(m) if m in TABLE else len(TABLE)
    )  # measures of the short table come first
    return SplitMeasures(
        split,
        kind,
        figures["questions"],
        figures["systems"],
        tuple(columns),
        figures.get("differences", {}),
        figures.get("questions_without_results", {}),
        figures.get("questions_without_relevant", 0),
        tuple(row for row in published if {*row.measures} & {*columns}),
    )


def table(metrics: Mapping[str, Any], part: SplitMeasures) -> dict[str, Any]:
    """Returns the template's values for a part."""
    return {
        "split": part.split,
        "kind": part.kind,
        "questions": part.questions,
        "heads": [HEADS.get(m, m) for m in part.columns],
        "lead": part.head,
        "rows": system_rows(metrics, part),
        "published_rows": len(part.published),
        "elsewhere": [published_row(part, row) for row in part.published if row.row not in part.systems],
        "differences": difference_rows(metrics, part),
        "without_relevant": part.without_relevant,
        "shallow": shallow_notes(metrics, part.split, part.columns, part.systems),
    }


def system_rows(metrics: Mapping[str, Any], part: SplitMeasures) -> list[dict[str, Any]]:
    """Returns one row per system with its published rows; `best` marks the highest mean of each measure."""
    top = {m: max(figures[m]["mean"] for figures in part.systems.values()) for m in part.columns}
    return [
        {
            "system": name,
            "label": metrics["labels"].get(name, name),
            "cells": [{"best": figures[m]["mean"] == top[m], **cell(figures[m])} for m in part.columns],
            "published": [published_row(part, row) for row in part.published if row.row == name],
            "without_results": part.without_results.get(name, 0),
        }
        for name, figures in part.systems.items()
    ]


def published_row(part: SplitMeasures, row: Published) -> dict[str, Any]:
    cells = [share_text(row.measures[m]) if m in row.measures else "" for m in part.columns]
    return {"label": row.label, "source": row.source, "cells": cells}


def difference_rows(metrics: Mapping[str, Any], part: SplitMeasures) -> list[dict[str, Any]]:
    """Returns one row per pair; `sure`: see `is_significant`, `counts` by the leading measure."""
    lines = []
    for pair, figures in part.differences.items():
        lead = figures.get(part.lead, {})
        counts = {name: int(lead[name]) for name in ("wins", "ties", "losses")} if "wins" in lead else None
        cells = [
            {"sure": is_significant(figures[m]), **signed(cell(figures[m])), "p": p_of(figures[m])}
            for m in part.columns
        ]
        lines.append({"label": pair_label(metrics, pair, " − "), "cells": cells, "counts": counts})
    return lines


def pair_label(metrics: Mapping[str, Any], pair: str, between: str) -> str:
    return between.join(metrics["labels"].get(name, name) for name in pair.split(" - "))


def p_of(figure: Mapping[str, float]) -> str:
    """Returns the corrected p as `p = .043` or `p < .001`; empty if the difference was not tested."""
    if "p_holm" not in figure:
        return ""
    p = p_text(figure["p_holm"])
    return f"p {p}" if p.startswith("<") else f"p = {p}"


def headline(metrics: Mapping[str, Any], part: SplitMeasures) -> list[dict[str, Any]]:
    """Returns the page's first figures: the leading measure of BM25, the last dense retriever and their fusion."""
    systems = [name for name in ("bm25", metrics["dense"], "fusion") if name in part.systems]
    return [
        {
            "system": name,
            "label": metrics["labels"].get(name, name),
            "mean": share_text(part.systems[name][part.lead]["mean"]),
            "published": next(
                (
                    share_text(row.measures[part.lead])
                    for row in part.published
                    if row.row == name and part.lead in row.measures
                ),
                None,
            ),
        }
        for name in systems
    ]


def verdict(metrics: Mapping[str, Any], part: SplitMeasures) -> str | None:
    """Returns a sentence about the last dense retriever and its first comparison; None if there is none."""
    dense = metrics["dense"]
    pair = next((pair for pair in part.differences if pair.split(" - ")[0] == dense), None)
    if pair is None:
        return None
    figure = part.differences[pair][part.lead]
    shown = signed(cell(figure))
    after, before = (metrics["labels"].get(name, name) for name in pair.split(" - "))
    p = f", {p_of(figure)}" if "p_holm" in figure else ""
    counts = ""
    if "wins" in figure:
        counts = f"; better for {counted(int(figure['wins']), 'questions')}, worse for {figure['losses']:,}"
    text = f"{after} against {before}: {shown['mean']} {part.head} {shown['interval']}{p}{counts}."
    return text[0].upper() + text[1:]


def others_values(others: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the template's values of others.json; `sure`: see `is_significant`."""
    head, rows = others_table(others)
    sure = [is_significant(row["difference"]) for row in others["collections"]]
    return {"head": head, "rows": [*zip(rows, sure, strict=True)], "worse": worse_sentences(others)}


def cell(figure: Mapping[str, float]) -> dict[str, str]:
    """Returns mean and interval as text."""
    mean, interval = estimate_text(figure).split(" ", 1)
    return {"mean": mean, "interval": interval}


def signed(cell: Mapping[str, str]) -> dict[str, str]:
    """Returns the cell of a difference, with a plus for a gain."""
    return {**cell, "mean": cell["mean"] if cell["mean"].startswith("−") else f"+{cell['mean']}"}


def in_file_name(text: str) -> str:
    """Returns lower-case words with dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
