"""Parts of an ablation that were built separately: their evaluations, and changes of their files."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.evaluate.significance.bootstrap import summary

QUESTIONS = 12
ROWS, SIZES, SEEDS = ("plain", "good", "learned"), (10, None), (1, 2)
SYSTEMS = {"bm25": "stage1", "mined": "stage2", "fusion": "fusion"}
Place = tuple[str, int | None, int]
PLACES: list[Place] = [(row, size, seed) for row in ROWS for size in SIZES for seed in SEEDS]


def evaluation(
    out: Path, place: Place, bm25: int = 0, questions: int = QUESTIONS, splits: Sequence[str] = ("dev", "test")
) -> Path:
    """The evaluation of a cell, with random values from its place; a row has one model before fine-tuning."""
    out.mkdir()
    row, size, seed = place
    strengths = {"bm25": bm25, "pretrained": ROWS.index(row)}
    strengths |= {name: 100 + 10 * PLACES.index((row, size, seed)) + n for n, name in enumerate(SYSTEMS.values())}
    summaries, tables = {}, []
    for s, split in enumerate(splits):
        shape = questions, len(MEASURES) + len(HITS)
        values = {name: np.random.default_rng([drawn, s]).random(shape) for name, drawn in strengths.items()}
        judged = {name: values_QM[:, : len(MEASURES)] for name, values_QM in values.items()}
        answered = {name: values_QM[: questions // 2, len(MEASURES) :] for name, values_QM in values.items()}
        summaries[split] = {
            "systems": summary(judged, MEASURES, [], 100, 0)["systems"],
            "answers": {"systems": summary(answered, HITS, [], 100, 0)["systems"]},
        }
        for name, values_QM in values.items():
            table = pd.DataFrame(values_QM, columns=[*MEASURES, *HITS])
            table.loc[questions // 2 :, [*HITS]] = np.nan
            table.insert(0, "query_id", [f"{split}{q}" for q in range(questions)])
            tables.append(table.assign(split=split, system=name))
    (out / "metrics.json").write_text(json.dumps({"labels": {"bm25": "BM25"}, "splits": summaries}))
    pd.concat(tables).to_parquet(out / "per_query.parquet")
    return out


MakePart = Callable[..., Path]


def damaged(part: Path, out: Path, damage: Callable[[dict], object]) -> Path:
    """A copy whose cells.json was changed."""
    shutil.copytree(part, out)
    whole = json.loads((out / "cells.json").read_text())
    damage(whole)
    (out / "cells.json").write_text(json.dumps(whole))
    return out
