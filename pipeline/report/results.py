"""The tables of results: our figures, the papers' beside them, and differences."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.evaluate.short_tables import TABLE, shallow_notes
from pipeline.evaluate.significance import sure
from pipeline.formatting import counted, estimate_text, p_text, share_text
from pipeline.report.published import Published

HEADS = {**TABLE, "RR@100": "MRR@100", "AP": "MAP"}
"""What the field calls the means of measures that have another name here."""
LEADS = {"judged": "RR@10", "answers": "hits@20"}
"""The measure that tells a table in a second."""

Figures = Mapping[str, Mapping[str, float]]
"""{measure: {mean, low, high}}"""


@dataclass(frozen=True)
class Part:
    """What was measured on a split, by judgements or by answer strings."""

    split: str
    kind: str
    """`judged` or `answers`."""
    questions: int
    systems: Mapping[str, Figures]
    columns: tuple[str, ...]
    """Measures of its table."""
    differences: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """By pair, `stage2 - bm25`."""
    without_results: Mapping[str, int] = field(default_factory=dict)
    without_relevant: int = 0
    published: tuple[Published, ...] = ()

    @property
    def lead(self) -> str:
        """The measure of the headline: the usual one, unless others were published and it was not."""
        named = [m for m in self.columns if any(m in row.measures for row in self.published)]
        usual = LEADS[self.kind]
        return usual if usual in (named or self.columns) else (named or self.columns)[0]

    @property
    def head(self) -> str:
        return HEADS.get(self.lead, self.lead)


def parts(metrics: Mapping[str, Any], published: Sequence[Published]) -> list[Part]:
    """Everything that was measured, test before dev; but first what was published, on the most questions."""
    found = []
    for split in [name for name in ("test", "dev") if name in metrics["splits"]]:
        given = metrics["splits"][split]
        of_split = [row for row in published if row.split == split]
        if given.get("systems"):
            found.append(_part(split, "judged", given, of_split))
        if given.get("answers"):
            found.append(_part(split, "answers", given["answers"], of_split))
    first = max((part for part in found if part.published), key=lambda part: part.questions, default=found[0])
    return [first, *(part for part in found if part is not first)]


def _part(split: str, kind: str, given: Mapping[str, Any], published: Sequence[Published]) -> Part:
    measured = [*next(iter(given["systems"].values()))]
    named = {measure for row in published for measure in row.measures}
    columns = [m for m in measured if kind == "answers" or m in TABLE or m in named]
    columns.sort(key=lambda m: [*TABLE].index(m) if m in TABLE else len(TABLE))  # the short table's first
    return Part(
        split,
        kind,
        given["questions"],
        given["systems"],
        tuple(columns),
        given.get("differences", {}),
        given.get("questions_without_results", {}),
        given.get("questions_without_relevant", 0),
        tuple(row for row in published if {*row.measures} & {*columns}),
    )


def table(metrics: Mapping[str, Any], part: Part) -> dict[str, Any]:
    """What the template shows of a part."""
    return {
        "split": part.split,
        "kind": part.kind,
        "questions": part.questions,
        "heads": [HEADS.get(m, m) for m in part.columns],
        "lead": part.head,
        "rows": rows(metrics, part),
        "published_rows": len(part.published),
        "elsewhere": [published_row(part, row) for row in part.published if row.row not in part.systems],
        "differences": difference_rows(metrics, part),
        "without_relevant": part.without_relevant,
        "shallow": shallow_notes(metrics, part.split, part.columns, part.systems),
    }


def rows(metrics: Mapping[str, Any], part: Part) -> list[dict[str, Any]]:
    """A row a system, `best` marking the highest mean of each measure; below it what was published of it."""
    top = {m: max(found[m]["mean"] for found in part.systems.values()) for m in part.columns}
    return [
        {
            "system": name,
            "label": metrics["labels"].get(name, name),
            "cells": [{"best": found[m]["mean"] == top[m], **cell(found[m])} for m in part.columns],
            "published": [published_row(part, row) for row in part.published if row.row == name],
            "without_results": part.without_results.get(name, 0),
        }
        for name, found in part.systems.items()
    ]


def published_row(part: Part, row: Published) -> dict[str, Any]:
    cells = [share_text(row.measures[m]) if m in row.measures else "" for m in part.columns]
    return {"label": row.label, "source": row.source, "cells": cells}


def difference_rows(metrics: Mapping[str, Any], part: Part) -> list[dict[str, Any]]:
    """A row a pair; `sure` as in pipeline/evaluate/significance.py, `counts` are questions by the leading measure."""
    found = []
    for pair, figures in part.differences.items():
        lead = figures.get(part.lead, {})
        counts = {name: int(lead[name]) for name in ("wins", "ties", "losses")} if "wins" in lead else None
        cells = [{"sure": sure(figures[m]), **signed(cell(figures[m])), "p": p_of(figures[m])} for m in part.columns]
        found.append({"label": pair_label(metrics, pair, " − "), "cells": cells, "counts": counts})
    return found


def pair_label(metrics: Mapping[str, Any], pair: str, between: str) -> str:
    return between.join(metrics["labels"].get(name, name) for name in pair.split(" - "))


def p_of(figure: Mapping[str, float]) -> str:
    """`p = .043`, `p < .001`: corrected, where it was tested."""
    if "p_holm" not in figure:
        return ""
    p = p_text(figure["p_holm"])
    return f"p {p}" if p.startswith("<") else f"p = {p}"


def headline(metrics: Mapping[str, Any], part: Part) -> list[dict[str, Any]]:
    """The page's first figures: the leading measure of BM25, the last dense retriever and their fusion."""
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


def verdict(metrics: Mapping[str, Any], part: Part) -> str | None:
    """A sentence on the last dense retriever and what it is compared with first; None where nothing is."""
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


def cell(figure: Mapping[str, float]) -> dict[str, str]:
    """Mean and interval as text."""
    mean, interval = estimate_text(figure).split(" ", 1)
    return {"mean": mean, "interval": interval}


def signed(cell: Mapping[str, str]) -> dict[str, str]:
    """The cell of a difference: a gain has a plus."""
    return {**cell, "mean": cell["mean"] if cell["mean"].startswith("−") else f"+{cell['mean']}"}


def in_file_name(text: str) -> str:
    """Lower-case words with dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
