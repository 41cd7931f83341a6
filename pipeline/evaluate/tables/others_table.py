"""The table of a model and its start on other collections, and a sentence where the model is worse."""

from collections.abc import Mapping
from typing import Any

from pipeline.evaluate.significance.paired import is_significant
from pipeline.evaluate.tables.short_tables import DIFFERENCE, difference_texts, label
from pipeline.formatting import p_text, share_text

KINDS = {"adapted": "adapted", "pretrained": "pre-trained"}
"""{run of the final model: what it is called}; another one is fine-tuned."""


def others_table(others: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Returns (heading, rows) from others.json, which has at least one row."""
    rows = others["collections"]
    head = [f"other collections, {others['measure']}", "questions", label("model"), rows[0]["label"], "difference"]
    return [*head, *DIFFERENCE], [
        [
            row["collection"],
            f"{row['questions']:,} {row['split']}",
            share_text(row["before"]["mean"]),
            share_text(row["after"]["mean"]),
            *difference_texts(row["difference"]),
        ]
        for row in rows
    ]


def worse_sentences(others: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each collection where the final model is significantly worse than its start."""
    return [
        f"On {row['collection']} the {KINDS.get(row['model'], 'fine-tuned')} model is worse than the model that it "
        f"started from: {others['measure']} {share_text(row['before']['mean'])} → {share_text(row['after']['mean'])} "
        f"(p {p_text(row['difference']['p_holm'])})."
        for row in others["collections"]
        if row["difference"]["mean"] < 0 and is_significant(row["difference"])
    ]
