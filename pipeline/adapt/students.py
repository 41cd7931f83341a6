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

from pipeline.adapt.apply_map import MAP
from pipeline.adapt.both_encoders import train_both_encoders
from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.guard import AGREEING, BLOCK, mapped_run
from pipeline.adapt.linear_map import Lists, divergence_of, train_map
from pipeline.adapt.query_encoder import train_query_encoder
from pipeline.adapt.training import Training
from pipeline.data.runs import Run, ranked
from pipeline.dense.index_files import Index
from pipeline.dense.search_runs import dense_run
from pipeline.finetune.encoders import Towers
from pipeline.modeling.biencoder import Encoder, check_fits, encode_rows, load_encoders
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.inputs import Form, passage_rows
from pipeline.modeling.model_files.existing_model import copy_folder, folders
from pipeline.modeling.model_files.sentence_transformers_files import read_vector, side
from pipeline.runtime.work import counter
from pipeline.tokenization.token_files import Tokens


@dataclass(frozen=True)
class TeacherLists:
    """Generated queries, those of the training first, and the teacher's lists."""

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

    def divergence(self, config: AdaptConfig, query_QE: np.ndarray, map_EE: np.ndarray | None = None) -> float:
        """Returns the KL divergence from the teacher on the training's queries, with these vectors of them."""
        lists = replace(self.lists, query_QE=query_QE[: self.training])
        return divergence_of(config, lists, self.index.vectors_ND, self.normalise, map_EE)


@dataclass(frozen=True)
class PassageInputs:
    """How the passages become inputs, for a model that encodes them again."""

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
    """See `TeacherLists.divergence`."""
    guard_run: Run
    """Its lists of the guard's queries."""
    write: Callable[[], None]
    """Writes what was trained."""


def with_map(given: TeacherLists, training: Training) -> Adapted:
    """Trains the map."""
    config, vectors_NE, query_QE = training.config, given.index.vectors_ND, given.query_QE

    def done(steps: int, loss: float) -> None:
        training.progress(steps, config.steps, "steps", {"loss": loss})

    map_EE = train_map(config, given.lists, vectors_NE, given.normalise, done)
    run = mapped_run(query_QE[given.training :], vectors_NE, map_EE, given.normalise, AGREEING + 1)
    return Adapted(given.divergence(config, query_QE, map_EE), run, lambda: np.save(training.out / MAP, map_EE))


def with_query_encoder(given: TeacherLists, training: Training) -> Adapted:
    """Trains the question encoder; passages keep their vectors."""
    trained = load_encoders(training.checkpoint)[0].to(training.device)
    train_query_encoder(training, trained, given.ids[: given.training], given.lists, given.index.vectors_ND)
    query_QE = encode_rows(trained, given.ids, training.budget(trained))
    run = dense_run(query_QE[given.training :], given.index, AGREEING + 1)
    write = partial(write_encoder, trained, side(training.checkpoint, "query"), training.out / "query")
    return Adapted(given.divergence(training.config, query_QE), run, write)


def with_both_encoders(given: TeacherLists, training: Training, passages: PassageInputs, listed: Run) -> Adapted:
    """Trains all weights. Of the passages, only those of the teacher's lists are encoded for the guard.

    The adapted model ranks `listed` again, the guard's queries' first passages by BM25 and by the start, at least
    AGREEING of each: a passage in neither list cannot lower its agreement, so that with short lists (`depth`) the guard
    is a little too kind. Raises InputError if the model does not fit the passages.
    """
    towers = Towers(load_encoders(training.checkpoint), None)
    for one in towers.encoders:
        one.to(training.device)
    specials, limit = passages.data.specials, passages.limit
    check_fits(towers.encoders[1], specials, training.checkpoint, "encode.passage_tokens", limit)
    settings, first = training.config.both_encoders, given.training
    most_tokens = settings.batch_queries * (max(len(row) for row in given.ids) + settings.candidates * limit)
    train_both_encoders(training, towers, given.ids[:first], given.lists, passages.rows, most_tokens)
    query_QE = encode_rows(towers.encoders[0], given.ids, training.budget(towers.encoders[0]))
    row_U = np.unique(np.concatenate([given.lists.row_QK.ravel(), listed.passage_R]))
    vectors_UE = encode_passages(towers.encoders[1], passages, row_U, training)
    lists = replace(given.lists, query_QE=query_QE[:first], row_QK=np.searchsorted(row_U, given.lists.row_QK))
    after = divergence_of(training.config, lists, vectors_UE, given.normalise)
    run = ranked_again(listed, query_QE[first:], row_U, vectors_UE)
    return Adapted(after, run, partial(write_both, towers, training))


def ranked_again(run: Run, query_QE: np.ndarray, row_U: np.ndarray, vectors_UE: np.ndarray) -> Run:
    """Returns the lists of `run` by these vectors; those of its passages, and perhaps of others, are at `row_U`."""
    place_R = np.searchsorted(row_U, run.passage_R)
    edges = np.searchsorted(run.question_R, np.arange(len(query_QE) + 1))
    scores = [
        vectors_UE[place_R[start:stop]] @ query_E
        for query_E, (start, stop) in zip(query_QE, pairwise(edges), strict=True)
    ]
    return ranked(run.question_R, run.passage_R, np.concatenate(scores))


def encode_passages(encoder: Encoder, passages: PassageInputs, row_U: np.ndarray, training: Training) -> np.ndarray:
    """Returns the vectors of the passages `row_U`, float32 [U, E]. Memory: the inputs of one block."""
    budget, done = training.budget(encoder), counter(training.progress, len(row_U), "passages")
    blocks = [row_U[start : start + BLOCK] for start in range(0, len(row_U), BLOCK)]
    return np.concatenate([encode_rows(encoder, passages.rows(block), budget, done) for block in blocks])


def write_both(towers: Towers, training: Training) -> None:
    starts = folders(training.checkpoint)
    for start, encoder in zip(starts, towers.encoders[: len(starts)], strict=True):
        write_encoder(encoder, start, copy_folder(start, training.checkpoint, training.out))


def write_encoder(encoder: Encoder, start: Path, out: Path) -> None:
    """Writes a trained encoder to the folder `out`, with the tokenizer and the settings of the model in `start`."""
    vector = replace(read_vector(start), projection=encoder.projection.dense if encoder.projection else None)
    save_checkpoint(out, encoder.model, start, vector=vector)
