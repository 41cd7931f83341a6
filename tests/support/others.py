"""A model that got worse on one further collection and better on another, as the stage `others` writes it."""

from typing import Any


def row(collection: str, before: float, after: float, p: float) -> dict[str, Any]:
    gain = after - before
    return {
        "collection": collection,
        "split": "test",
        "questions": 1234,
        "model": "stage2",
        "label": "stage 2",
        "before": {"mean": before, "low": before - 0.02, "high": before + 0.02},
        "after": {"mean": after, "low": after - 0.02, "high": after + 0.02},
        "difference": {"mean": gain, "low": gain - 0.01, "high": gain + 0.01, "p": p / 2, "p_holm": p}
        | {"wins": 3, "ties": 1000, "losses": 231},
    }


OTHERS = {
    "measure": "nDCG@10",
    "test": "randomisation",
    "collections": [row("nfcorpus", 0.3, 0.281, 0.004), row("<adi>", 0.31, 0.312, 0.71)],
}
WORSE = "On nfcorpus the fine-tuned model is worse than the model that it started from: nDCG@10 .300 → .281 (p .004)."
