"""An ablation of 3 rows x 2 sizes x 2 seeds, from ranked lists that are drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from evaluating import EVALUATE
from machines import make_machine
from searched import write_collection

from pipeline.ablation.config import AblationConfig, CellConfig
from pipeline.data import runs
from pipeline.data.collection import schemas, write_table
from pipeline.evaluate.evaluate import evaluate
from pipeline.runtime.work import Work, silent

QUESTIONS, PASSAGES = 30, 25
STRENGTH = {"<b>plain": 0.0, "good": 1.5, "learned": 0.7}
"""How much each row prefers the relevant passage."""
SIZES = (10, None)
ANSWERED = {("test", q) for q in range(0, PASSAGES, 2)}
SEEDS = (1, 2)


@contextmanager
def undrawn() -> Iterator[None]:
    """Pictures that hold the points of their lines instead of a drawing, which takes half a second each."""

    def points(figure) -> str:
        lines = [line.get_xydata().tolist() for axes in figure.axes for line in axes.lines]
        return f"<svg>{[axes.get_title() for axes in figure.axes]} {lines}</svg>"

    with (
        mock.patch("pipeline.report.panels.as_svg", points),
        mock.patch("pipeline.report.panels.as_png", lambda figure: points(figure).encode()),
    ):
        yield


def work(out: Path) -> Work:
    out.mkdir(parents=True)
    return Work(out, out.parent, make_machine(), silent)


def run(folder: Path, strength: float, seed: int, questions: int = QUESTIONS) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    with runs.writer(folder) as write:
        for split in ("dev", "test"):
            for q in range(questions):
                score_K = rng.normal(size=PASSAGES)
                score_K[q % PASSAGES] += strength
                by = np.argsort(-score_K)
                write(split, [f"{split}{q}"] * PASSAGES, [f"p{n}" for n in by], score_K[by])
    return folder


def make_inputs(tmp_path: Path) -> dict[str, Path]:
    """A collection, the evaluations of 3 rows x 2 sizes x 2 seeds, and trainings of the last size and first seed."""
    asked = [(split, q) for split in ("train", "dev", "test") for q in range(QUESTIONS)]
    judged = [(split, f"{split}{q}", f"p{q % PASSAGES}", 1) for split, q in asked]
    passages = [(f"p{n}", f"p{n}", "", f"answer{n}") for n in range(PASSAGES)]
    collection = write_collection(tmp_path / "collection", passages, [], judged)
    rows = [(f"{s}{q}", s, "question", [f"answer{q}"] if (s, q) in ANSWERED else []) for s, q in asked]
    write_table(collection / "queries.parquet", schemas()["queries"], rows)
    bm25 = run(tmp_path / "bm25", 1.0, 99)
    (bm25 / "bm25.json").write_text('{"scores": "bm25"}')
    made: dict[str, Path] = {"collection": collection}
    for n, (row, size, seed) in enumerate(places()):
        own = STRENGTH[row] + (0.5 if size is None else 0.0)
        strengths = {"pretrained": STRENGTH[row], "stage1": own, "stage2": own + 1}
        found = {name: run(tmp_path / f"{name}-{n}", strengths[name], 10 * n + seed) for name in strengths}
        made[f"evaluate_{n}"] = tmp_path / f"evaluate-{n}"
        evaluate(EVALUATE, collection, bm25, work(made[f"evaluate_{n}"]), **found)
        if (size, seed) == (None, 1):
            made[f"stage1_{n}"] = folder = trained(tmp_path / f"trained-{n}", 5 / np.arange(1, 41))
            epochs = np.arange(1, 5)
            validation = {"epoch": epochs, "step": 10 * epochs, "RR@10": epochs / 10}
            pq.write_table(pa.table(validation), folder / "validation.parquet")
            made[f"attention_{n}"] = looked(tmp_path / f"attention-{n}", 2.0)
    return made


def trained(out: Path, losses: np.ndarray) -> Path:
    """A training with the loss of each update."""
    out.mkdir()
    steps = np.arange(1, len(losses) + 1)
    history = {
        "step": steps,
        "loss": losses,
        "skipped": np.zeros(len(steps), int),
        "learning_rate": np.ones(len(steps)),
    }
    pq.write_table(pa.table(history), out / "history.parquet")
    return out


def looked(out: Path, last: float) -> Path:
    """The entropy of the attention in one layer. `last`: that of the last model."""
    out.mkdir()
    entropy = {"model": ["pretrained", "stage1", "stage2"], "layer": [1, 1, 1], "entropy": [3.0, 2.5, last]}
    pq.write_table(pa.table(entropy), out / "attention.parquet")
    return out


def places() -> list[tuple[str, int | None, int]]:
    return [(row, size, seed) for row in STRENGTH for size in SIZES for seed in SEEDS]


def config(**changes) -> AblationConfig:
    systems = {"bm25": "stage1", "mined": "stage2"}
    same = {"systems": systems, "epochs": 4, "start": None}
    words = ["cocondenser", "run", "tiny", "--set"]
    cells = [
        CellConfig(row=row, size=size, seed=seed, command=[*words, f"stage1.seed={seed}"], **same)
        for row, size, seed in places()
    ]
    fields = {
        "title": "An <script>",
        "reference": "<b>plain",
        "measures": ["RR@10", "R@20", "hits@5"],
        "test": "randomisation",
        "samples": 500,
        "seed": 7,
        "cells": cells,
    }
    return AblationConfig(**{**fields, **changes})


def wide() -> AblationConfig:
    """With the columns before fine-tuning, of the last size and the first seed, and joined with BM25."""
    cells = []
    for cell in config().cells:
        first = {"none": "pretrained"} if (cell.size, cell.seed) == (None, 1) else {}
        cells.append(cell.model_copy(update={"systems": {**first, **cell.systems, "fusion": "fusion"}}))
    return config(cells=cells)


def values(inputs: dict[str, Path], n: int, system: str, measure: str) -> np.ndarray:
    """[Q] of a cell on dev."""
    table = pd.read_parquet(inputs[f"evaluate_{n}"] / "per_query.parquet")
    return table[(table.split == "dev") & (table.system == system)][measure].to_numpy(np.float64)
