"""What the report shows of questions with answers: hits, beside the judged measures or in their place."""

from collections.abc import Mapping
from typing import Any

from pipeline.tables import HITS, TABLE


def main_part(part: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """What the page's first table shows of a split, and its columns: the judged measures, else hits."""
    return (part, TABLE) if part["systems"] else (part["answers"], HITS)


def further_part(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The hits of a split whose first table shows judged measures."""
    return part.get("answers") if part["systems"] else None


def first_column(columns: Mapping[str, str]) -> str:
    """The measure of the headline: MRR@10 or hits@20."""
    return "RR@10" if columns is TABLE else "hits@20"


def where_found(row: Mapping[str, Any]) -> str:
    """Of a row of per_query.parquet: where the first right passage stands, judged or by its answer."""
    if row["RR@100"] is not None:
        rank = round(1 / row["RR@100"]) if row["RR@100"] > 0 else None
        return f"first relevant at rank {rank}" if rank else "nothing relevant in the first 100"
    depth = next((name.partition("@")[2] for name in HITS if row[name]), None)
    return f"an answer in the first {depth}" if depth else "no answer in the first 100"


def is_right(answer: Mapping[str, Any], least: int, columns: Mapping[str, str]) -> bool:
    """Whether a row of answers.parquet is judged relevant, or holds an answer where the page shows hits."""
    return bool(answer["holds_answer"]) if columns is HITS else (answer["relevance"] or 0) >= least
