"""The table of a model's dimensions, for the report."""

from collections.abc import Mapping
from typing import Any

from pipeline.formatting import share_text

SHOWN = ("nDCG@10", "R@100")
"""Its measures."""


def dimensions_table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Returns (heading, rows) from dimensions.json."""
    head = [f"dimensions, {found['questions']:,} questions of {found['split']}", *SHOWN, "bytes per passage"]
    return head, [
        [f"{row['dimension']:,}", *(share_text(row[name]) for name in SHOWN), f"{row['bytes']:,}"]
        for row in found["rows"]
    ]
