"""The table of a model's dimensions."""

from collections.abc import Mapping
from typing import Any

from pipeline.formatting import estimate_text

SHOWN = ("nDCG@10", "R@100")
"""Its measures."""


def dimensions_table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Returns (heading, rows) from dimensions.json; a row has each mean with its interval."""
    head = [
        f"dimensions, {found['questions']:,} questions of {found['split']}",
        *SHOWN,
        "bytes per passage",
        "questions/s",
    ]
    return head, [
        [f"{row['dimension']:,}", *(estimate_text(row[name]) for name in SHOWN), f"{row['bytes']:,}", speed_text(row)]
        for row in found["rows"]
    ]


def speed_text(row: Mapping[str, Any]) -> str:
    """Returns the questions per second of a row's search, or "" if an older artifact has none."""
    found = row.get("questions_per_second")
    return "" if found is None else f"{found:,.0f}"
