"""The parts of a finished run to export, and sample texts for checks of exports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.collection import read_queries
from pipeline.evaluate.fusion.fuse import Choice
from pipeline.modeling.biencoder import Encoder, load_encoders
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import Form, passage_rows, question_rows, read_form
from pipeline.tokenization.token_files import Tokens

SAMPLE = 200
"""Number of questions, and of passages, to check."""


@dataclass(frozen=True)
class Source:
    """The parts of a run to export; folders are artifacts."""

    recipe: str
    model: str
    """The node that trained the model."""
    checkpoint: Path
    encoder: EncoderConfig
    passage_tokens: int
    dimension: int | None
    """The vectors' first numbers that the index has, as all exported parts; None: all."""
    collection: Path
    tokens: Path
    relevance: int
    """Smallest relevant judgement."""
    index: Path | None
    """Index of the judged passages by this model; None if the run has none."""
    served: Path | None
    """The index that `cocondenser search` uses."""
    served_collection: Path
    """The collection of its passages."""
    runs: Mapping[str, Path]
    """{name in the export: run}; `run` is the model's own."""
    fusion: Choice | None
    """How `bm25` and `run` were fused."""
    best_three_share: float
    """Of a document's score (evaluate.best_three_share)."""
    reciprocal_k: float
    question: str
    """An example question."""
    system: str
    """The model's row in `metrics`."""
    metrics: Mapping[str, Any]
    """The run's metrics.json."""
    settings: Mapping[str, Any]
    """The run's recipe, as JSON values."""
    command: Sequence[str]
    """The command that computes the run again, as arguments."""
    artifacts: Mapping[str, str]
    """{node: digest} of the run, each after its inputs."""


@dataclass(frozen=True)
class Sample:
    """Evenly spread rows of the collection's tables, with the encoders' inputs."""

    questions: np.ndarray
    passages: np.ndarray
    question_rows: list[np.ndarray]
    passage_rows: list[np.ndarray]


def question(collection: Path) -> str | None:
    """Returns the collection's first question; None if it has none."""
    return next((query.text for query in read_queries(collection)), None)


def cut_encoders(checkpoint: Path, dimension: int | None) -> tuple[Encoder, Encoder]:
    """Returns the (question, passage) encoders of vectors of `dimension` numbers; the same object if tied."""
    question, passage = load_encoders(checkpoint)
    cut = question.cut_to(dimension)
    return cut, cut if question is passage else passage.cut_to(dimension)


def form_of(source: Source, tokens: Tokens) -> Form:
    return read_form(source.encoder, source.checkpoint, tokens.specials)


def read_sample(source: Source, size: int = SAMPLE) -> Sample:
    tokens = Tokens.open(source.tokens)
    form = form_of(source, tokens)
    questions, passages = spread(len(tokens.queries), size), spread(len(tokens.passages), size)
    return Sample(
        questions,
        passages,
        question_rows(tokens, questions, form),
        passage_rows(tokens, passages, form, source.passage_tokens),
    )


def spread(number: int, size: int) -> np.ndarray:
    """Returns at most `size` of `number` places, evenly spread."""
    return np.unique(np.linspace(0, number - 1, min(size, number)).astype(np.int64))


def judged_places(source: Source, split: str, query_ids: list[str]) -> list[int]:
    """Returns the rows of queries.parquet of these questions of a split."""
    place = {q.query_id: row for row, q in enumerate(read_queries(source.collection)) if q.split == split}
    return [place[query_id] for query_id in query_ids]


def prompt(prefix: str) -> str:
    """Returns a prefix as text before another text, with a space: the project tokenizes the prefix separately."""
    return prefix if not prefix or prefix[-1].isspace() else prefix + " "
