"""The data of an ablation's table, tests and page as three files; reading checks everything."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain, groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import pandas as pd
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from pipeline.ablation.config import AblationConfig, Negatives
from pipeline.ablation.data import (
    RUN_COLUMNS,
    AblationData,
    Cell,
    Curves,
    MeasuredQuestions,
    RunResults,
    differing,
    known_cut,
    measured_questions,
)
from pipeline.config import Config
from pipeline.data.parquet import read_parquet, write_parquet
from pipeline.data.stored import input_error_on_read
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.evaluate.significance.bootstrap import DIGITS

if TYPE_CHECKING:
    import pyarrow

CELLS, QUESTIONS, CURVES = FILES = ("cells.json", "questions.parquet", "curves.json")
CutAt = Annotated[int, Field(ge=1)]
RunPlace = tuple[str, Negatives | None, int | None, int | None, str]
"""Of a run: RUN_COLUMNS."""
AGAIN = "copy it again, or `cocondenser ablation run` builds it again"


class Figure(Config):
    """A measure's mean over questions and its 95 % interval."""

    mean: float = Field(allow_inf_nan=False)
    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self


class FirstStage(Config):
    """The run that is the same in all cells; empty if there is none."""

    label: str
    figures: dict[str, dict[str, Figure]]
    """{split: {measure: figure}}."""
    cut_at: dict[str, CutAt] = Field(default_factory=dict)
    """{split: length at which its lists were cut}, of splits with cut lists."""


class StoredRun(Config):
    """A column's figures in a cell, on a split; its questions are in questions.parquet."""

    split: str
    negatives: Negatives
    figures: dict[str, Figure]
    cut_at: CutAt | None = None


class Stored(Config):
    """cells.json."""

    config: AblationConfig
    training_questions: int = Field(ge=0)
    collections: list[str]
    first_stage: FirstStage
    runs: list[list[StoredRun]]
    """The runs of each cell."""
    inputs: list[dict[str, str]]
    """The inputs of each cell."""


def stored(data: AblationData) -> dict[str, Any]:
    """What `Stored` holds, ready for JSON."""
    cuts = {split: run.cut_at for split, run in data.first_stage.items() if run.cut_at is not None}
    return {
        "config": data.config.model_dump(mode="json"),
        "training_questions": data.training_questions,
        "collections": data.collections,
        "first_stage": {
            "label": data.label,
            "figures": {split: run.figures for split, run in data.first_stage.items()},
            **({"cut_at": cuts} if cuts else {}),
        },
        "runs": [
            [
                {"split": split, "negatives": negatives, "figures": run.figures, **known_cut(run.cut_at)}
                for (split, negatives), run in runs
            ]
            for runs in (cell.runs.items() for cell in data.cells)
        ],
        "inputs": [cell.inputs for cell in data.cells],
    }


def write_data(data: AblationData, out: Path) -> None:
    """Writes FILES. Equal data give equal bytes, and `read_data` returns equal data."""
    import pyarrow as pa

    whole = stored(data)
    (out / CELLS).write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    curves = [cell.curves and asdict(cell.curves) for cell in data.cells]
    (out / CURVES).write_text(json.dumps(curves, ensure_ascii=False) + "\n", encoding="utf-8")
    placed = [
        run.questions.assign(row=data.label, negatives=None, size=None, seed=None, split=split)
        for split, run in data.first_stage.items()
    ]
    for config, cell in zip(data.config.cells, data.cells, strict=True):
        place = {"row": config.row, "size": config.size, "seed": config.seed}
        placed += [
            run.questions.assign(**place, negatives=negatives, split=split)
            for (split, negatives), run in cell.runs.items()
        ]
    schema = _schema()
    tables = [pa.Table.from_pandas(frame, schema, preserve_index=False) for frame in placed]
    write_parquet(pa.concat_tables([schema.empty_table(), *tables]), out / QUESTIONS, compression="zstd")


def _schema() -> "pyarrow.Schema":
    """Returns the columns of questions.parquet."""
    import pyarrow as pa

    kinds = {"size": pa.int64(), "seed": pa.int64()}
    names = [(name, kinds.get(name, pa.string())) for name in (*RUN_COLUMNS, "query_id")]
    return pa.schema([*names, *((name, pa.float64()) for name in (*MEASURES, *HITS))])


def read_data(folder: Path) -> AblationData:
    """Reads what `write_data` wrote. Raises InputError if a file is missing, damaged, or does not fit the others."""
    with input_error_on_read(folder / CELLS, AGAIN):
        cells = checked_cells(json.loads((folder / CELLS).read_bytes()))
    with input_error_on_read(folder / CURVES, AGAIN):
        curves = checked_curves(json.loads((folder / CURVES).read_bytes()), cells)
    with input_error_on_read(folder / QUESTIONS, AGAIN):
        return build_data(cells, curves, _questions(read_parquet(folder / QUESTIONS)))


def checked_cells(found: Any) -> Stored:
    """Raises ValueError with the first fault in a line."""
    cells: Stored = _checked(TypeAdapter(Stored), found)
    if not len(cells.runs) == len(cells.inputs) == len(cells.config.cells):
        raise ValueError("config, runs and inputs have different numbers of cells")
    for cell, runs in zip(cells.config.cells, cells.runs, strict=True):
        if not {run.negatives for run in runs} <= {*cell.systems}:
            raise ValueError(f"{cell.row}: has runs that are not in its systems")
    return cells


def checked_curves(found: Any, cells: Stored) -> list[Curves | None]:
    """Raises ValueError with the first fault in a line."""
    curves: list[Curves | None] = _checked(TypeAdapter(list[Curves | None]), found)
    _check_curves(curves, len(cells.config.cells))
    return curves


def run_places(cells: Stored) -> list[RunPlace]:
    """Returns the places of all runs: the first stage's, then those of each cell."""
    first: list[RunPlace] = [(cells.first_stage.label, None, None, None, split) for split in cells.first_stage.figures]
    return first + [
        (cell.row, run.negatives, cell.size, cell.seed, run.split)
        for cell, runs in zip(cells.config.cells, cells.runs, strict=True)
        for run in runs
    ]


def build_data(
    cells: Stored, curves: Sequence[Curves | None], questions: Mapping[RunPlace, pd.DataFrame]
) -> AblationData:
    """Builds the data from its parts. Raises ValueError if they do not fit each other."""
    named = run_places(cells)
    place = iter(named)
    first = {
        split: _run(figures, questions, next(place), cells.first_stage.cut_at.get(split))
        for split, figures in cells.first_stage.figures.items()
    }
    built = [
        Cell(
            {(run.split, run.negatives): _run(run.figures, questions, next(place), run.cut_at) for run in runs},
            drawn,
            inputs,
        )
        for runs, drawn, inputs in zip(cells.runs, curves, cells.inputs, strict=True)
    ]
    _check_places(named, questions)
    wanted: dict[str, MeasuredQuestions] = {}
    for split, run in [*first.items(), *((split, run) for cell in built for (split, _), run in cell.runs.items())]:
        own = measured_questions([(split, run)])
        if differing(wanted.setdefault(split, own), own) is not None:
            raise ValueError(f"runs of {split} have different questions")
    return AblationData(
        cells.config, built, cells.first_stage.label, first, cells.training_questions, cells.collections
    )


def _checked(kind: "TypeAdapter[Any]", value: Any) -> Any:
    """Returns the validated value. Raises ValueError with the first fault in one line."""
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None


def _check_curves(curves: Sequence[Curves | None], cells: int) -> None:
    if len(curves) != cells:
        raise ValueError(f"has {len(curves)} cells, but {CELLS} has {cells}")
    for one in filter(None, curves):
        drawn = [curve for curve in (one.loss, one.dev) if curve]
        if any(len(epochs) != len(figures) for epochs, figures in drawn):
            raise ValueError("a curve with different numbers of epochs and figures")
        numbers = chain(*chain(*drawn), *(one.entropy or {}).values())
        if not all(map(isfinite, numbers)):
            raise ValueError("a curve with a number that is not finite")


def _questions(table: "pyarrow.Table") -> dict[RunPlace, pd.DataFrame]:
    """{place: its questions}; a place's rows follow each other. Raises ValueError."""
    own, wanted = ([*zip(schema.names, schema.types, strict=True)] for schema in (table.schema, _schema()))
    if own != wanted:
        names = sorted({name for name, _ in {*own} ^ {*wanted}}) or ["their order"]
        raise ValueError(f"different columns or types: {', '.join(names)}")
    measures = table.drop_columns([*RUN_COLUMNS])
    questions: dict[RunPlace, pd.DataFrame] = {}
    start = 0
    for place, rows in groupby(zip(*(table[name].to_pylist() for name in RUN_COLUMNS), strict=True)):
        if place in questions:
            raise ValueError(f"the questions of {_name(place)} are not consecutive")
        count = sum(1 for _ in rows)
        questions[place] = measures.slice(start, count).to_pandas()
        start += count
    return questions


def _check_places(named: Sequence[RunPlace], questions: Mapping[RunPlace, pd.DataFrame]) -> None:
    """Raises ValueError where `named`, the runs of cells.json, has one twice or lacks one that has questions."""
    twice = next((place for place, count in Counter(named).items() if count > 1), None)
    if twice:
        raise ValueError(f"{CELLS} has {_name(twice)} twice")
    lost = next((place for place in questions if place not in named), None)
    if lost:
        raise ValueError(f"questions of {_name(lost)}, but {CELLS} has no such run")


def _run(
    figures: Mapping[str, Figure],
    questions: Mapping[RunPlace, pd.DataFrame],
    place: RunPlace,
    cut_at: int | None,
) -> RunResults:
    """Returns the run of a place. Raises ValueError if its questions are missing or their means are not its figures."""
    if place not in questions:
        raise ValueError(f"no questions of {_name(place)}")
    own = questions[place]
    for measure in (*MEASURES, *HITS):
        if measure not in figures and own[measure].notna().any():
            raise ValueError(f"{measure} of {_name(place)}: {CELLS} has no figure")
    for measure, figure in figures.items():
        if measure not in (*MEASURES, *HITS):
            raise ValueError(f"{measure} of {_name(place)}: no such measure")
        if not abs(own[measure].mean() - figure.mean) <= 10**-DIGITS:
            raise ValueError(
                f"{measure} of {_name(place)}: the mean of its questions is not {figure.mean}, the figure in {CELLS}"
            )
    return RunResults({measure: figure.model_dump() for measure, figure in figures.items()}, own, cut_at)


def _name(place: RunPlace) -> str:
    return ", ".join(str(part) for part in place if part is not None)
