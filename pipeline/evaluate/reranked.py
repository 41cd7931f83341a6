"""Whether a cross-encoder orders the retriever's lists better than the retriever itself, on dev questions."""

from collections.abc import Mapping
from typing import Any

from pipeline.evaluate.tables.short_tables import HITS, tables_of

RERANKED = "rerank"
"""The row of the lists that a cross-encoder has reranked."""
ADVICE = "search without --rerank, or take another cross-encoder (--reranker)"


def rerank_warning(metrics: Mapping[str, Any]) -> str | None:
    """Returns a line if the row `reranked` is below the dense run that it reranks on dev, else an empty text; None
    without such a row.

    `metrics`: the evaluation's. Compares MRR@10, or hits@20 if dev has only answers.
    """
    for systems, columns in tables_of(metrics, "dev") if "dev" in metrics["splits"] else ():
        measure = "hits@20" if columns is HITS else "RR@10"
        if RERANKED in systems and metrics["dense"] in systems:
            reranked, dense = (systems[name][measure]["mean"] for name in (RERANKED, metrics["dense"]))
            return below(columns[measure], reranked, dense)
    return None


def below(measure: str, reranked: float, retriever: float) -> str:
    """Returns a line if the mean of reranked lists is below that of the retriever's; else an empty text."""
    if reranked >= retriever:
        return ""
    figures = f"{measure} {reranked:.3f} reranked, {retriever:.3f} without"
    return f"the cross-encoder is below the retriever on dev: {figures}; {ADVICE}"
