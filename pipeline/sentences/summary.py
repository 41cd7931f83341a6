"""Stage `summary`: the table of a sentence task, one row per model and size, from all its trainings."""

import json
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline.config import Config, Seed
from pipeline.data.stored import read_json, read_table
from pipeline.errors import InputError
from pipeline.runtime.work import Metrics, Work
from pipeline.sentences.measures import Estimate, accuracy, spearman


class Training(Config):
    """One training of the table."""

    run: str
    """The stage's input with this training."""
    model: str
    """The row's label."""
    size: int | None = Field(ge=0)
    """Requested training rows. null: all; 0: the model was not trained."""
    epochs: int = Field(ge=0)
    """0 if and only if `size` is 0."""
    repeat: int = Field(ge=1)
    """Number of the repeat; each has its own seed."""

    @model_validator(mode="after")
    def _trained_on_rows(self) -> Self:
        if (self.size == 0) != (self.epochs == 0):
            raise ValueError("size and epochs are both 0, for the untrained model, or neither")
        return self


class SummaryConfig(Config):
    trainings: list[Training]
    bootstrap_samples: int = Field(ge=100)
    """Resamples of the test's rows for each 95 % interval."""
    seed: Seed
    """Seed of the resamples."""


def summary(config: SummaryConfig, work: Work, **runs: Path) -> Metrics:
    """Writes `summary.json`: the measure, and a row for each model and size, in the order of `config.trainings`.

    A row uses the candidate number of epochs with the best mean over the repeats on dev, the smaller of equal ones. Its
    test figure is the mean over the repeats, with a 95 % interval by a bootstrap over the test's rows; size is 0 for
    the untrained model and null for all training rows. Raises InputError if two trainings were measured on different
    rows.
    """
    cells: dict[tuple[str, int | None], dict[int, list[Training]]] = {}
    for one in config.trainings:
        cell = cells.setdefault((one.model, one.size), {})
        cell.setdefault(one.epochs, []).append(one)
    results = {name: read_json(folder / "result.json", "rows") for name, folder in runs.items()}
    measure = "spearman" if any("test_spearman" in result for result in results.values()) else "accuracy"
    rows: list[dict[str, Any]] = []
    for done, ((model, size), candidates) in enumerate(cells.items()):
        work.progress(done, len(cells), "rows")
        on_dev = {
            epochs: _mean([results[one.run][f"dev_{measure}"] for one in repeats])
            for epochs, repeats in candidates.items()
        }
        epochs = max(sorted(on_dev), key=lambda epochs: _order(on_dev[epochs]))
        chosen = candidates[epochs]
        of_test = [results[one.run][f"test_{measure}"] for one in chosen]
        estimate = None if None in of_test else _estimate(measure, [runs[one.run] for one in chosen], config)
        row: dict[str, Any] = {
            "model": model,
            "size": size,
            "rows": 0 if size == 0 else results[chosen[0].run]["rows"],
            "epochs": epochs,
            "candidates": {str(epochs): value for epochs, value in on_dev.items()},
            "dev": on_dev[epochs],
            "test": None if estimate is None else estimate._asdict(),
            "repeats": of_test,
        }
        if measure == "spearman":
            row["pearson"] = _mean([results[one.run]["test_pearson"] for one in chosen])
        rows.append(row)
    content = {"measure": measure, "rows": rows}
    (work.out / "summary.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return {"measure": measure, "rows": len(rows)}


def _order(value: float | None) -> float:
    """Returns a sort key: a missing correlation is the worst."""
    return -2.0 if value is None else value


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _estimate(measure: str, folders: list[Path], config: SummaryConfig) -> Estimate:
    tables = [read_table(folder / "predictions.parquet", filters=[("split", "==", "test")]) for folder in folders]
    if any(not table["line"].equals(tables[0]["line"]) for table in tables):
        raise InputError("trainings of one row were measured on different rows of the test")
    if measure == "spearman":
        cosine_TN = np.stack([table["cosine"].to_numpy() for table in tables])
        return spearman(cosine_TN, tables[0]["score"].to_numpy(), config.bootstrap_samples, config.seed)
    right_TN = np.stack([table["positive"].to_numpy() < table["negative"].to_numpy() for table in tables])
    return accuracy(right_TN, config.bootstrap_samples, config.seed)
