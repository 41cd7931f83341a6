"""What the tables of results call systems, and how they write figures."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

LABELS = {"model": "ready model", "pretrained": "pre-trained only", "rerank": "reranked"}
FIRST_STAGES = {"bm25": "BM25", "weights": "first stage (weights)", "run": "first stage (run file)"}
"""By what scores the first stage's artifact holds (bm25.json)."""
TABLE = {"RR@10": "MRR@10", "nDCG@10": "nDCG@10", "R@100": "R@100"}
"""Measures of the short table, and what the field calls their means."""


def label(name: str) -> str:
    """What tables call a run: `stage 1`, `stage 2, round 3`; another system by its own name."""
    stage, _, number = name.removeprefix("stage").partition("-")
    if name.startswith("stage") and stage.isdigit():
        return f"stage {stage}, round {number}" if number else f"stage {stage}"
    return LABELS.get(name, name)


def shown_split(metrics: Mapping[str, Any]) -> str:
    """The split that tables show: test where there is one."""
    return "test" if "test" in metrics["splits"] else "dev"


def rows(metrics: Mapping[str, Any]) -> list[list[str]]:
    """The short table of the parsed `metrics.json`: each system's label, then MRR@10, nDCG@10, R@100 [95 %]."""
    systems = metrics["splits"][shown_split(metrics)]["systems"]
    return [
        [metrics["labels"][name], *(estimate_text(figures[measure]) for measure in TABLE)]
        for name, figures in systems.items()
    ]


def table(metrics: Mapping[str, Any]) -> "Table":
    """The short table, to be printed."""
    from rich.table import Table

    split = shown_split(metrics)
    questions = metrics["splits"][split]["questions"]
    shown = Table(title=f"{split}: {questions:,} questions, mean [95 % interval]", title_justify="left")
    shown.add_column("")
    for name in TABLE.values():
        shown.add_column(name, justify="right")
    for row in rows(metrics):
        shown.add_row(*row)
    return shown


def estimate_text(figure: Mapping[str, float]) -> str:
    """`.497 [.475, .519]`, as papers print shares."""
    mean, low, high = (share_text(figure[key]) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def share_text(share: float) -> str:
    """`.497`, `−.012`; `.000` for what rounds to nothing from either side."""
    return f"{round(share, 3) + 0.0:.3f}".replace("0.", ".", 1).replace("-", "−")


def p_text(p: float) -> str:
    """`.043`, `< .001`."""
    return "< .001" if p < 0.001 else share_text(p)
