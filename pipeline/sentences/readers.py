"""Reads tables of sentences from any CSV: scored pairs, labelled pairs or triplets. Errors name file and line."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.data.text import delimited, text_files
from pipeline.errors import InputError
from pipeline.notices import one_line

Column = Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=1)]
"""A column's name in the file's first line, or its number from 1."""
SPLITS = ("train", "dev", "test")
SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";"}


class Layout(Config):
    """The format of a table's lines, the same for train, dev and test."""

    separator: Literal["tab", "comma", "semicolon"]
    """Separator of fields."""
    quotes: bool
    """Fields may be in double quotes and then contain separators and line ends (RFC 4180). False: a quote is a normal
    character, as in STS-b's files, whose sentences contain single quotes."""
    header: bool
    """The first line names the columns."""


class ScoredConfig(Config):
    """Pairs with a similarity score, as in STS-b (Cer et al. 2017)."""

    kind: Literal["scored"]
    """Names this reader."""
    train: Path
    dev: Path
    """Chooses among epochs."""
    test: Path
    """Is measured."""
    layout: Layout
    sentence1: Column
    sentence2: Column
    score: Column
    highest: float = Field(gt=0)
    """Score of two sentences with the same meaning. 5 in STS-b; the lowest is 0."""

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        return check_columns(self)


class LabelledConfig(Config):
    """Pairs with one of three labels, as in natural language inference (SNLI, MultiNLI)."""

    kind: Literal["labelled"]
    """Names this reader."""
    train: Path
    dev: Path | None
    """Measured after the training, if it is set."""
    layout: Layout
    sentence1: Column
    sentence2: Column
    label: Column
    labels: Annotated[list[str], Field(min_length=3, max_length=3)]
    """The three labels as in the files."""
    left_out: list[str]
    """Labels of lines that are skipped and counted, such as SNLI's `-` (no agreement)."""

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        if len({*self.labels, *self.left_out}) != 3 + len(self.left_out):
            raise ValueError("labels and left_out: duplicate label")
        return check_columns(self)


class TripletConfig(Config):
    """A sentence with a nearer and a farther sentence, from sections of articles (Dor et al. 2018)."""

    kind: Literal["triplets"]
    """Names this reader."""
    train: Path
    dev: Path
    """Chooses among epochs."""
    test: Path
    """Is measured."""
    layout: Layout
    anchor: Column
    positive: Column
    """A sentence of the same section."""
    negative: Column
    """A sentence of another section of the same article."""

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        return check_columns(self)


TEXTS = {
    "scored": ("sentence1", "sentence2"),
    "labelled": ("sentence1", "sentence2"),
    "triplets": ("anchor", "positive", "negative"),
}
"""Fields that name a column of sentences."""
TARGETS = {"scored": "score", "labelled": "label"}
"""Fields that name the column of the training target."""


def fields(kind: str) -> tuple[str, ...]:
    """Returns the configuration's fields that name a column; they are the columns of the written table."""
    return (*TEXTS[kind], *([TARGETS[kind]] if kind in TARGETS else []))


def check_columns(config: Any) -> Any:
    """Returns the configuration. Raises ValueError for a shared column, and for a column name without a header."""
    named = {name: getattr(config, name) for name in fields(config.kind)}
    for name, column in named.items():
        if isinstance(column, str) and not config.layout.header:
            raise ValueError(f"{name}: {column!r} is a name, but layout.header is false: use the column's number")
    if len({*named.values()}) != len(named):
        raise ValueError(f"{', '.join(named)}: must be different columns")
    return config


def read_rows(config: Any, split: str, left_out: Counter[str]) -> Iterator[tuple[Any, ...]]:
    """Yields (line, the sentences, score or label) of each row of a split's file, for one of the three configurations.

    Scores become 0 to 1, labels their place in `labels`. `left_out` counts skipped rows, by label. Raises InputError
    for a row with too few fields or more than the header, an empty sentence, a score that is not a number from 0 to
    `highest`, and an unknown label.
    """
    path: Path = getattr(config, split)
    records = _records(path, config.layout)
    advice = "; a field with a separator must be in double quotes" if config.layout.quotes else ""
    named, names = next(records, (1, [])) if config.layout.header else (1, None)
    places = _places(f"{path}:{named}", config, names)
    for line, record in records:
        if names is not None and any(field.strip() for field in record[len(names) :]):
            raise InputError(f"{path}:{line}: {len(record)} fields, but the first line names {len(names)}{advice}")
        if len(record) <= max(places.values()):
            name = max(places, key=lambda name: places[name])
            raise InputError(
                f"{path}:{line}: {len(record)} fields, but {name} is in column {places[name] + 1}{_hint(record)}"
            )
        row: list[Any] = [line]
        for name in TEXTS[config.kind]:
            text = record[places[name]].strip()
            if not text:
                raise InputError(f"{path}:{line}: {name} is empty")
            row.append(text)
        if config.kind == "scored":
            row.append(_score(f"{path}:{line}", record[places["score"]], config.highest))
        if config.kind == "labelled":
            label = record[places["label"]].strip()
            if label in config.left_out:
                left_out[label] += 1
                continue
            if label not in config.labels:
                raise InputError(f"{path}:{line}: label '{one_line(label)}' is none of {', '.join(config.labels)}")
            row.append(config.labels.index(label))
        yield tuple(row)


def _records(path: Path, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Yields (line of its end, fields) of each record."""
    separator = SEPARATORS[layout.separator]
    if not layout.quotes:
        yield from delimited.unquoted(path, separator)
        return
    try:
        for _, last, record in delimited.records(path, separator):
            yield last, record
    except delimited.UnclosedQuote as error:
        raise InputError(f"{error}; set layout.quotes to false if a quote is a normal character") from None


def _places(where: str, config: Any, header: list[str] | None) -> dict[str, int]:
    """Returns {field: index of its column}. `header`: the names of the columns; `where`: their place."""
    columns = {name: getattr(config, name) for name in fields(config.kind)}
    names = [name.strip() for name in header or ()]
    for field, column in columns.items():
        if isinstance(column, str) and names.count(column) != 1:
            times = "no" if column not in names else "more than one"
            raise InputError(
                f"{where}: {times} column '{one_line(column)}' for {field}; known are {', '.join(names)}{_hint(names)}"
            )
    places = {name: names.index(column) if isinstance(column, str) else column - 1 for name, column in columns.items()}
    if len({*places.values()}) != len(places):
        raise InputError(f"{where}: {', '.join(places)}: two of them are the same column")
    return places


def _hint(fields: Sequence[str]) -> str:
    wrong = delimited.has_semicolons(fields)
    return "; they seem to be separated by ;: set layout.separator to semicolon" if wrong else ""


def _score(place: str, text: str, highest: float) -> float:
    try:
        if not text_files.is_plain(text.strip()):
            raise ValueError
        score = float(text)
    except ValueError:
        raise InputError(f"{place}: score '{one_line(text)}' is not a number") from None
    if not math.isfinite(score) or not 0 <= score <= highest:
        raise InputError(f"{place}: score '{one_line(text)}' is not between 0 and {highest:g}")
    return score / highest
