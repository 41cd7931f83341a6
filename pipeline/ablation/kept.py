"""What an ablation's table, tests and page are built from, as one small Parquet file: figures to keep in a repository.

The file has one row. A question has the same outcome (its values of all measures) in many runs: each different outcome
is stored once, and a question has the number of its outcome in each run.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pipeline.ablation.data import AblationData, RunResults
from pipeline.ablation.files import (
    AGAIN,
    RunPlace,
    Stored,
    build_data,
    checked_cells,
    checked_curves,
    run_places,
    stored,
)
from pipeline.data.parquet import read_parquet, write_parquet
from pipeline.data.stored import input_error_on_read
from pipeline.errors import InputError
from pipeline.evaluate.measures import HITS, MEASURES

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".parquet"
VALUES = [*MEASURES, *HITS]


def write_data_file(data: AblationData, path: Path) -> None:
    """Writes equal bytes for equal data, which `read_data_file` returns. Raises InputError if it cannot be written."""
    import pyarrow as pa

    cells = stored(data)
    record = {
        **cells,
        "config": json.dumps(cells["config"], ensure_ascii=False),
        "first_stage": {"cut_at": {}, **cells["first_stage"]},
        "curves": [cell.curves and asdict(cell.curves) for cell in data.cells],
        **_outcomes(
            [*data.first_stage.items(), *((place[0], run) for cell in data.cells for place, run in cell.runs.items())]
        ),
    }
    try:
        # The pages are large, so that zstd finds what questions have in common.
        write_parquet(
            pa.Table.from_pylist([record], _schema()),
            path,
            compression="zstd",
            compression_level=19,
            data_page_size=2**24,
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _outcomes(runs: list[tuple[str, RunResults]]) -> dict[str, Any]:
    """`outcomes` and `questions` of (split, run), all runs of a split with the same questions."""
    query_ids: dict[str, list[str]] = {}
    for split, run in runs:
        query_ids.setdefault(split, run.questions["query_id"].tolist())
    values = [run.questions.set_index("query_id").loc[query_ids[split], VALUES] for split, run in runs]
    whole = pd.concat(values)
    number = whole.groupby(VALUES, sort=False, dropna=False).ngroup().to_numpy()
    number_of_run = np.split(number, np.cumsum([len(one) for one in values])[:-1])
    questions = []
    for split, ids in query_ids.items():
        number_QR = np.stack([one for one, (of, _) in zip(number_of_run, runs, strict=True) if of == split], axis=1)
        questions += [
            {"split": split, "query_id": query_id, "outcomes": own}
            for query_id, own in zip(ids, number_QR.tolist(), strict=True)
        ]
    outcomes = whole.drop_duplicates().astype(object)
    return {"outcomes": outcomes.where(outcomes.notna(), None).to_dict("records"), "questions": questions}


def read_data_file(path: Path) -> AblationData:
    """Reads what `write_data_file` wrote. Raises InputError if it is damaged, or its parts do not fit each other."""
    with input_error_on_read(path, AGAIN):
        table = read_parquet(path)
        if table.schema != _schema() or len(table) != 1:
            raise ValueError("not one row with the columns of kept figures")
        (record,) = table.to_pylist(maps_as_pydicts="strict")
        outcomes, questions, curves = (record.pop(name) for name in ("outcomes", "questions", "curves"))
        cells = checked_cells({**record, "config": json.loads(record["config"])})
        return build_data(cells, checked_curves(curves, cells), _questions(cells, outcomes, questions))


def _questions(
    cells: Stored, outcomes: list[dict[str, float]], questions: list[dict[str, Any]]
) -> Mapping[RunPlace, pd.DataFrame]:
    """{run: its questions}. Raises ValueError, or LookupError for an outcome that is not there."""
    values = pd.DataFrame(outcomes, columns=VALUES, dtype=float)
    found = {}
    of_runs = run_places(cells)
    for split in dict.fromkeys(place[-1] for place in of_runs):
        own = [question for question in questions if question["split"] == split]
        query_ids = [question["query_id"] for question in own]
        own_runs = [place for place in of_runs if place[-1] == split]
        number_QR = np.array([question["outcomes"] for question in own], int).reshape(len(own), len(own_runs))
        for place, number_Q in zip(own_runs, number_QR.T, strict=True):
            found[place] = values.iloc[number_Q].reset_index(drop=True)
            found[place].insert(0, "query_id", query_ids)
    return found


def _schema() -> "pyarrow.Schema":
    import pyarrow as pa

    text, number, value = pa.string(), pa.int64(), pa.float64()
    figures = pa.map_(text, pa.struct({"mean": value, "low": value, "high": value}))
    run = pa.struct({"split": text, "negatives": text, "figures": figures, "cut_at": number})
    curve = pa.list_(pa.list_(value))
    return pa.schema(
        {
            "config": text,  # JSON
            "training_questions": number,
            "collections": pa.list_(text),
            "first_stage": pa.struct(
                {"label": text, "figures": pa.map_(text, figures), "cut_at": pa.map_(text, number)}
            ),
            "runs": pa.list_(pa.list_(run)),
            "inputs": pa.list_(pa.map_(text, text)),
            "curves": pa.list_(pa.struct({"loss": curve, "dev": curve, "entropy": pa.map_(text, pa.list_(value))})),
            "outcomes": pa.list_(pa.struct(dict.fromkeys(VALUES, value))),
            "questions": pa.list_(pa.struct({"split": text, "query_id": text, "outcomes": pa.list_(pa.int32())})),
        }
    )
