"""What the teacher's lists train: a linear map, the question encoder, or both encoders; each with its guard's lists.

Shapes: Q queries, K candidates of a query, U different passages, E dimension of a vector.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.adapt import teacher
from pipeline.adapt.apply_map import MAP
from pipeline.adapt.both_encoders import train_both_encoders
from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.guard import AGREEING, mapped_run
from pipeline.adapt.linear_map import Lists, divergence_of, train_map
from pipeline.adapt.query_encoder import train_query_encoder
from pipeline.data.runs import Run, ranked
from pipeline.dense.index_files import Index
from pipeline.finetune.encoders import Towers
from pipeline.modeling.biencoder import Encoder, check_fits, encode_rows, load_encoders
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.inputs import Form, passage_rows
from pipeline.modeling.model_files.existing_model import folders
from pipeline.modeling.model_files.sentence_transformers_files import read_vector, side
from pipeline.runtime.work import Machine, Progress
from pipeline.tokenization.token_files import Tokens


@dataclass(frozen=True)
class Taught:
    """Generated queries, those of the training first, and the teacher's lists."""

    config: AdaptConfig
    index: Index
    normalise: bool
    """Whether the model's vectors have length 1."""
    training: int
    """Number of the training's queries; the others are the guard's."""
    ids: list[np.ndarray]
    """Tokens of each query."""
    query_QE: np.ndarray
    """By the model as it is."""
    lists: Lists
    """Of the training's queries."""

    def divergence(self, query_QE: np.ndarray, map_EE: np.ndarray | None = None) -> float:
        """Returns the KL divergence from the teacher on the training's queries, with these vectors of them."""
        lists = replace(self.lists, query_QE=query_QE[: self.training])
        return divergence_of(self.config, lists, self.index.vectors_ND, self.normalise, map_EE)


@dataclass(frozen=True)
class Place:
    """Where and how the model is trained."""

    checkpoint: Path
    """The model as it is."""
    out: Path
    checkpoints: Path
    machine: Machine
    device: str
    budget: int
    """Tokens of a pass that only encodes."""
    progress: Progress


@dataclass(frozen=True)
class Passages:
    """The tokens of the passages, for a model that encodes them again."""

    data: Tokens
    form: Form
    limit: int
    """Tokens of the longest passage."""

    def rows(self, row_U: np.ndarray) -> list[np.ndarray]:
        """Returns the inputs of the passages `row_U`."""
        return passage_rows(self.data, row_U.tolist(), self.form, self.limit)


class Adapted(NamedTuple):
    """A model after its training."""

    divergence: float
    """See `Taught.divergence`."""
    guard_run: Run
    """Its lists of the guard's queries."""
    write: Callable[[], None]
    """Writes what was trained."""


def with_map(taught: Taught, place: Place) -> Adapted:
    """Trains the map."""
    config, vectors_NE, query_QE = taught.config, taught.index.vectors_ND, taught.query_QE

    def done(steps: int, loss: float) -> None:
        place.progress(steps, config.steps, "steps", {"loss": loss})

    map_EE = train_map(config, taught.lists, vectors_NE, taught.normalise, done)
    run = mapped_run(query_QE[taught.training :], vectors_NE, map_EE, taught.normalise, AGREEING + 1)
    return Adapted(taught.divergence(query_QE, map_EE), run, lambda: np.save(place.out / MAP, map_EE))


def with_query_encoder(taught: Taught, place: Place) -> Adapted:
    """Trains the question encoder; passages keep their vectors."""
    trained = load_encoders(place.checkpoint)[0].to(place.device)
    train_query_encoder(
        taught.config,
        trained,
        taught.ids[: taught.training],
        taught.lists,
        taught.index.vectors_ND,
        place.checkpoints,
        place.machine,
        place.progress,
        place.device,
    )
    query_QE = encode_rows(trained, taught.ids, place.budget)
    run = teacher.dense_run(query_QE[taught.training :], taught.index, AGREEING + 1)
    write = partial(write_encoder, trained, side(place.checkpoint, "query"), place.out / "query")
    return Adapted(taught.divergence(query_QE), run, write)


def with_both_encoders(taught: Taught, place: Place, passages: Passages, of_guard: Run) -> Adapted:
    """Trains all weights. Of the passages, those of the teacher's lists are encoded for the guard.

    `of_guard`: the teacher's lists of the guard's queries, which the adapted model ranks again. Raises InputError if
    the model does not fit the passages.
    """
    towers = Towers(load_encoders(place.checkpoint), None)
    for one in towers.encoders:
        one.to(place.device)
    specials, limit = passages.data.specials, passages.limit
    check_fits(towers.encoders[1], specials, place.checkpoint, "encode.passage_tokens", limit)
    settings, first = taught.config.both_encoders, taught.training
    most_tokens = settings.batch_queries * (max(len(row) for row in taught.ids) + settings.candidates * limit)
    train_both_encoders(
        taught.config,
        towers,
        taught.ids[:first],
        taught.lists,
        passages.rows,
        most_tokens,
        place.checkpoints,
        place.machine,
        place.progress,
        place.device,
    )
    query_QE = encode_rows(towers.encoders[0], taught.ids, place.budget)
    row_U = np.unique(np.concatenate([taught.lists.row_QK.ravel(), of_guard.passage_R]))
    vectors_UE = encode_passages(towers.encoders[1], passages, row_U, place)
    lists = replace(taught.lists, query_QE=query_QE[:first], row_QK=np.searchsorted(row_U, taught.lists.row_QK))
    after = divergence_of(taught.config, lists, vectors_UE, taught.normalise)
    run = ranked_again(of_guard, query_QE[first:], row_U, vectors_UE)
    return Adapted(after, run, partial(write_both, towers, place))


def ranked_again(run: Run, query_QE: np.ndarray, row_U: np.ndarray, vectors_UE: np.ndarray) -> Run:
    """Returns the lists of `run` by these vectors; those of its passages, and perhaps of others, are at `row_U`."""
    place_R = np.searchsorted(row_U, run.passage_R)
    edges = np.searchsorted(run.question_R, np.arange(len(query_QE) + 1))
    scores = [
        vectors_UE[place_R[start:stop]] @ query_E
        for query_E, (start, stop) in zip(query_QE, pairwise(edges), strict=True)
    ]
    return ranked(run.question_R, run.passage_R, np.concatenate(scores))


def encode_passages(encoder: Encoder, passages: Passages, row_U: np.ndarray, place: Place) -> np.ndarray:
    """Returns the vectors of the passages `row_U`, float32 [U, E]."""
    encoded = 0

    def done(number: int) -> None:
        nonlocal encoded
        encoded += number
        place.progress(encoded, len(row_U), "passages")

    return encode_rows(encoder, passages.rows(row_U), place.budget, done)


def write_both(towers: Towers, place: Place) -> None:
    for folder, encoder in zip(folders(place.checkpoint), towers.encoders, strict=False):  # one folder if tied
        write_encoder(encoder, folder, place.out if folder == place.checkpoint else place.out / folder.name)


def write_encoder(encoder: Encoder, start: Path, out: Path) -> None:
    """Writes a trained encoder to the folder `out`, with the tokenizer and the settings of the model in `start`."""
    vector = replace(read_vector(start), projection=encoder.projection.dense if encoder.projection else None)
    save_checkpoint(out, encoder.model, start, vector=vector)
