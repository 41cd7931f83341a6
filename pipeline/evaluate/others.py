"""Compares a model with its start on further collections, which it was not trained on: the stage `others`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.evaluate.config import EvaluateConfig
from pipeline.runtime.work import Metrics, Work

MEASURE = "nDCG@10"
START = "model"
"""The run of the model as it was; an evaluation's other run is that of the final model."""
ON = "on_"
"""Before a collection's name in the names of inputs."""


def others(config: EvaluateConfig, work: Work, **evaluations: Path) -> Metrics:
    """Writes others.json: {measure, test, collections}, with a row for each collection.

    A row has `collection`, `split`, `questions`, `model` (the final model's run), its `label`, `before` and `after`
    ({mean, low, high}) and `difference` ({mean, low, high, p, p_holm, wins, ties, losses}, p_holm over the
    collections). `evaluations`: {`on_NAME`: artifact of the stage `evaluate` with both runs}. Raises InputError for a
    collection where no dev or test question has a relevant passage.
    """
    rows = corrected([row_of(name.removeprefix(ON), folder) for name, folder in evaluations.items()])
    found = {"measure": MEASURE, "test": config.test, "collections": rows}
    (work.out / "others.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    figures: Metrics = {}
    for row in rows:
        figures |= {f"{row['collection']}/{name}": row[name]["mean"] for name in ("before", "after")}
        figures[f"{row['collection']}/p"] = row["difference"]["p_holm"]
    return figures


def row_of(collection: str, evaluation: Path) -> dict[str, Any]:
    """Returns the row of a collection: test questions, or dev questions if no test question can be measured."""
    path = evaluation / "metrics.json"
    metrics = read_json(path, "splits", "labels")
    for split in ("test", "dev"):
        part = metrics["splits"].get(split, {"systems": {}})
        final = next((name for name in part["systems"] if name != START), None)
        if final is not None:
            return {
                "collection": collection,
                "split": split,
                "questions": part["questions"],
                "model": final,
                "label": metrics["labels"][final],
                "before": part["systems"][START][MEASURE],
                "after": part["systems"][final][MEASURE],
                "difference": part["differences"][f"{final} - {START}"][MEASURE],
            }
    raise InputError(f"evaluate.others: {collection}: no dev or test question has a relevant passage ({path})")


def corrected(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows with p_holm over all of them, by Holm's method."""
    import numpy as np

    from pipeline.evaluate.significance.paired import holm, rounded_p

    p_C = holm(np.array([[row["difference"]["p"]] for row in rows]))[:, 0]
    return [
        {**row, "difference": {**row["difference"], "p_holm": rounded_p(p)}} for row, p in zip(rows, p_C, strict=True)
    ]
