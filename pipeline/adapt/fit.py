"""The child process of the stage `adapt`: lists of generated queries, the training, and whether its result is used."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.adapt import teacher
from pipeline.adapt.apply_map import MAP
from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.guard import AGREEING, compare, mapped_run
from pipeline.adapt.linear_map import Lists, divergence_of, train_map, training_lists
from pipeline.adapt.queries import GeneratedQuery, generate
from pipeline.adapt.query_encoder import train_query_encoder, write_query_encoder
from pipeline.data.passages import in_parquet
from pipeline.data.runs import Run
from pipeline.dense.index_files import Index, open_index
from pipeline.dense.question_encoder import QuestionEncoder, question_encoder
from pipeline.dense.search import check_model
from pipeline.modeling.biencoder import Encoder, encode_rows, load_encoders
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.runtime.work import Machine, Metrics, Progress
from pipeline.training.memory import encoding_budget


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


class Adapted(NamedTuple):
    """A model after its training."""

    divergence: float
    """See `Taught.divergence`."""
    guard_run: Run
    """Its lists of the guard's queries."""
    write: Callable[[], None]
    """Writes what was trained."""


def fit(
    *,
    progress: Progress,
    device: str,
    config: dict,
    encoder: dict,
    collection: str,
    checkpoint: str,
    index: str,
    bm25: str,
    out: str,
    checkpoints: str,
    machine: dict,
) -> Metrics:
    """Writes what was trained to the folder `out` if it is used: `map.npy` (float32 [E, E]), or the model `query`.

    Returns the stage's metrics.
    """
    settings, own_machine = AdaptConfig(**config), Machine.model_validate(machine)
    opened = open_index(Path(index))
    check_model(opened, Path(checkpoint))
    model = question_encoder(Path(checkpoint), EncoderConfig(**encoder))
    training, guard = (readable(model, queries) for queries in generate(Path(collection), settings))
    counts: Metrics = {"queries": len(training), "guard_queries": len(guard)}
    if not training or not guard or len(opened.vectors_ND) < 3:  # a list needs two passages besides the query's own
        return {**counts, "used": "no"}
    texts = [query.text for query in (*training, *guard)]
    source_Q = np.array([query.passage for query in (*training, *guard)], np.int64)
    ids = [row for row in model.rows(texts) if row is not None]
    model.encoder.to(device)
    budget = encoding_budget(own_machine.token_budget, device, model.encoder.model.config)
    query_QE = encode_rows(model.encoder, ids, budget)
    lexical = teacher.bm25_run(Path(bm25), texts, settings.depth + 1, in_parquet(Path(collection)), progress)
    dense = teacher.dense_run(query_QE, opened, settings.depth + 1)
    fused = teacher.teach(lexical, dense, source_Q, settings.depth)

    last = len(training)
    row_QK, teacher_QK = teacher.candidates(of_queries(fused, 0, last), last, settings.candidates)
    lists = training_lists(settings, query_QE[:last], row_QK, teacher_QK, opened.vectors_ND)
    taught = Taught(settings, opened, model.encoder.normalise, last, ids, query_QE, lists)
    if settings.trains == "map":
        adapted = with_map(taught, progress, Path(out))
    else:
        trained = load_encoders(Path(checkpoint))[0].to(device)
        train_query_encoder(
            settings, trained, ids[:last], lists, opened.vectors_ND, Path(checkpoints), own_machine, progress, device
        )
        adapted = with_query_encoder(taught, trained, budget, Path(checkpoint), Path(out))
    guarded = compare(
        of_queries(fused, last, len(texts)),
        of_queries(dense, last, len(texts)),
        adapted.guard_run,
        source_Q[last:],
        settings.seed,
    )
    is_used = guarded.accepts(settings.guard_p)
    if is_used:
        adapted.write()
    return {
        **counts,
        "divergence_before": taught.divergence(query_QE),
        "divergence_after": adapted.divergence,
        "agreement_before": guarded.before,
        "agreement_after": guarded.after,
        "agreement_p": guarded.p,
        "used": "yes" if is_used else "no",
    }


def with_map(taught: Taught, progress: Progress, out: Path) -> Adapted:
    """Trains the map."""
    config, vectors_NE, query_QE = taught.config, taught.index.vectors_ND, taught.query_QE

    def done(steps: int, loss: float) -> None:
        progress(steps, config.steps, "steps", {"loss": loss})

    map_EE = train_map(config, taught.lists, vectors_NE, taught.normalise, done)
    run = mapped_run(query_QE[taught.training :], vectors_NE, map_EE, taught.normalise, AGREEING + 1)
    return Adapted(taught.divergence(query_QE, map_EE), run, lambda: np.save(out / MAP, map_EE))


def with_query_encoder(taught: Taught, trained: Encoder, budget: int, checkpoint: Path, out: Path) -> Adapted:
    """The model whose question encoder is `trained`; its passages keep their vectors."""
    query_QE = encode_rows(trained, taught.ids, budget)
    run = teacher.dense_run(query_QE[taught.training :], taught.index, AGREEING + 1)
    return Adapted(taught.divergence(query_QE), run, lambda: write_query_encoder(trained, checkpoint, out))


def readable(model: QuestionEncoder, queries: list[GeneratedQuery]) -> list[GeneratedQuery]:
    """Returns the queries of which the tokenizer makes tokens."""
    rows = model.rows([query.text for query in queries])
    return [query for query, row in zip(queries, rows, strict=True) if row is not None]


def of_queries(run: Run, start: int, stop: int) -> Run:
    """Returns the rows of the queries from `start` to `stop`, which then count from 0."""
    part = run.rows(slice(*np.searchsorted(run.question_R, [start, stop])))
    return Run(part.question_R - start, part.passage_R, part.score_R)
