"""What of a finished run is exported, and the texts that exports are checked on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.collection import read_queries
from pipeline.evaluate.fusion import Choice
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import Form, passage_rows, question_rows, read_form
from pipeline.tokenization.token_files import Tokens

SAMPLE = 200
"""Questions, and passages, that are looked at."""


@dataclass(frozen=True)
class Source:
    """Folders are artifacts."""

    recipe: str
    model: str
    """The node whose model it is."""
    checkpoint: Path
    encoder: EncoderConfig
    passage_tokens: int
    collection: Path
    tokens: Path
    relevance: int
    """Least judgement that is relevant."""
    index: Path | None
    """Of the judged passages by this model; None where the run has none."""
    served: Path | None
    """The index that `cocondenser search` answers from."""
    runs: Mapping[str, Path]
    """By the name that they get: `run` is the model's own."""
    fusion: Choice | None
    """How `bm25` and `run` were joined."""
    reciprocal_k: float
    depth: int
    """Passages of a question in `run`."""
    question: str
    """An example."""
    system: str
    """The model's row in `metrics`."""
    metrics: Mapping[str, Any]
    """The run's metrics.json."""
    settings: Mapping[str, Any]
    """The run's recipe, as JSON values."""
    command: Sequence[str]
    """The words of the command that computes it again."""
    artifacts: Mapping[str, str]
    """{node: digest} of the run, each after what it was made from."""


@dataclass(frozen=True)
class Sample:
    """Places in the collection's tables, evenly spread, and what the encoders read there."""

    questions: np.ndarray
    passages: np.ndarray
    question_rows: list[np.ndarray]
    passage_rows: list[np.ndarray]


def question(collection: Path) -> str | None:
    """The first of a collection's; None where it has none."""
    return next((query.text for query in read_queries(collection)), None)


def form_of(source: Source, tokens: Tokens) -> Form:
    return read_form(source.encoder, source.checkpoint, tokens.specials)


def sample(source: Source, size: int = SAMPLE) -> Sample:
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
    """At most `size` places of `number`, evenly spread."""
    return np.unique(np.linspace(0, number - 1, min(size, number)).astype(np.int64))


def judged_places(source: Source, split: str, query_ids: list[str]) -> list[int]:
    """Rows of queries.parquet of these questions of a split."""
    place = {q.query_id: row for row, q in enumerate(read_queries(source.collection)) if q.split == split}
    return [place[query_id] for query_id in query_ids]


def prompt(prefix: str) -> str:
    """A prefix as text that is put before another: the project takes its tokens for themselves."""
    return prefix if not prefix or prefix[-1].isspace() else prefix + " "
