"""Checks the parts of a run's recipe and evaluation that later commands read; both may come from another machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from artifacts.objects import changed
from artifacts.records import Ref
from artifacts.runs import RunRecord
from artifacts.schema import first_line
from pipeline.data.stored import AGAIN, read_json
from pipeline.dense.approximate import ApproximateConfig
from pipeline.errors import InputError
from pipeline.modeling.encoder_config import EncoderConfig


class _Part(BaseModel):
    """A part of a larger object, whose other fields are not checked."""

    model_config = ConfigDict(allow_inf_nan=False)


class _Search(_Part):
    depth: int = Field(gt=0)
    approximate: ApproximateConfig | None = None


class _Bm25(_Part):
    depth: int = Field(gt=0)


class _Encode(_Part):
    passage_tokens: int = Field(gt=0)


class _Evaluate(_Part):
    reciprocal_k: float = Field(gt=0)


class _Recipe(_Part):
    encoder: EncoderConfig | None = None
    encode: _Encode | None = None
    search: _Search | None = None
    bm25: _Bm25 | None = None
    evaluate: _Evaluate | None = None
    ingest: dict[str, Any] | None = None
    title: str | None = None
    example_question: str | None = None


def recipe_of(run: RunRecord, *sections: str) -> dict[str, Any]:
    """The complete recipe in a run's record. Raises InputError if one of `sections` is missing or wrong."""
    details = run.details.get("recipe")
    try:
        _Recipe.model_validate(details)
    except ValidationError as error:
        raise InputError(f"the record of the run of {run.name}: recipe.{first_line(error)}") from None
    recipe: dict[str, Any] = dict(details or {})
    absent = [section for section in sections if recipe.get(section) is None]
    if absent:
        raise InputError(f"the record of the run of {run.name}: its recipe lacks {' and '.join(absent)}")
    return recipe


class _Systems(_Part):
    systems: dict[str, dict[str, dict[str, float | None]]]
    questions: int = Field(ge=0)


class _Split(_Systems):
    answers: _Systems | None = None

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if not self.systems and self.answers is None:
            raise ValueError("names no system")
        return self


class _Fusion(_Part):
    method: str
    weight: float | None = None
    why: str | None = None
    """None in evaluations of older versions."""


class _Metrics(_Part):
    winner_on_dev: Literal["dense", "fusion", "bm25"] | None
    dense: str | None
    fusion: _Fusion | None
    labels: dict[str, str] = {}
    splits: dict[Literal["dev", "test"], _Split] | None = None
    """Empty if the collection had no questions to measure with."""
    config: dict[str, Any] = {}


class _Figure(_Part):
    mean: float
    low: float
    high: float


class _Difference(_Figure):
    p_holm: float
    wins: int
    ties: int
    losses: int


class _OtherCollection(_Part):
    collection: str
    split: Literal["dev", "test"]
    questions: int
    model: str
    label: str
    before: _Figure
    after: _Figure
    difference: _Difference


class _Others(_Part):
    measure: str
    collections: list[_OtherCollection] = Field(min_length=1)


class _Dimension(_Part):
    dimension: int = Field(gt=0)
    ndcg: _Figure = Field(alias="nDCG@10")
    recall: _Figure = Field(alias="R@100")
    bytes: int = Field(ge=0)
    questions_per_second: float | None = Field(default=None, ge=0)  # older artifacts do not have it


class _Dimensions(_Part):
    split: Literal["dev", "test"]
    questions: int = Field(gt=0)
    rows: list[_Dimension] = Field(min_length=1)


def read_others(refs: Mapping[str, Ref]) -> dict[str, Any] | None:
    """Reads others.json; None if the run measured no other collections. Raises InputError if it is damaged."""
    return _read_checked(refs, "others", _Others)


def read_dimensions(refs: Mapping[str, Ref]) -> dict[str, Any] | None:
    """Reads dimensions.json; None if no prefixes of vectors were trained. Raises InputError if it is damaged."""
    return _read_checked(refs, "dimensions", _Dimensions)


def _read_checked(refs: Mapping[str, Ref], node: str, model: type[_Part]) -> dict[str, Any] | None:
    """Reads NODE.json of the node's artifact."""
    if node not in refs:
        return None
    path = refs[node].path / f"{node}.json"
    found = read_json(path)
    _check(model, found, path)
    return found


def _check(model: type[_Part], value: Mapping[str, Any], path: Path) -> None:
    """Raises InputError for values that no stage writes, and for a file that was changed."""
    if changed(path):
        raise InputError(f"{path}: was changed; {AGAIN}")
    try:
        model.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{path}: {first_line(error)}; {AGAIN}") from None


def read_metrics(refs: Mapping[str, Ref], *more: str) -> dict[str, Any] | None:
    """Reads the evaluation's metrics.json. Raises InputError if it is damaged or lacks one of the fields `more`."""
    if "evaluate" not in refs:
        return None
    path = refs["evaluate"].path / "metrics.json"
    metrics = read_json(path, *READ, *more)
    _check(_Metrics, metrics, path)
    return metrics


READ = ("winner_on_dev", "dense", "fusion")
"""The fields that every reader of metrics.json needs."""
