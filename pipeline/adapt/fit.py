"""The child process of the stage `adapt`: lists of generated queries, the trained map, and whether it is used."""

from pathlib import Path

import numpy as np

from pipeline.adapt import teacher
from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.guard import AGREEING, compare, mapped_run
from pipeline.adapt.linear_map import divergence_of, train_map, training_lists
from pipeline.adapt.queries import GeneratedQuery, generate
from pipeline.config import CountOrAuto
from pipeline.data.passages import in_parquet
from pipeline.data.runs import Run
from pipeline.dense.index_files import open_index
from pipeline.dense.question_encoder import QuestionEncoder, question_encoder
from pipeline.dense.search import check_model
from pipeline.modeling.biencoder import encode_rows
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.runtime.work import Metrics, Progress
from pipeline.training.memory import encoding_budget


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
    token_budget: CountOrAuto,
) -> Metrics:
    """Writes the map to the file `out` (float32 [E, E]) if it is used. Returns the stage's metrics."""
    settings = AdaptConfig(**config)
    opened = open_index(Path(index))
    check_model(opened, Path(checkpoint))
    model = question_encoder(Path(checkpoint), EncoderConfig(**encoder))
    normalise = model.encoder.normalise
    training, guard = (readable(model, queries) for queries in generate(Path(collection), settings))
    counts: Metrics = {"queries": len(training), "guard_queries": len(guard)}
    if not training or not guard or len(opened.vectors_ND) < 3:  # a list needs two passages besides the query's own
        return {**counts, "used": "no"}
    texts = [query.text for query in (*training, *guard)]
    source_Q = np.array([query.passage for query in (*training, *guard)], np.int64)
    model.encoder.to(device)
    budget = encoding_budget(token_budget, device, model.encoder.model.config)
    query_QE = encode_rows(model.encoder, [row for row in model.rows(texts) if row is not None], budget)
    lexical = teacher.bm25_run(Path(bm25), texts, settings.depth + 1, in_parquet(Path(collection)), progress)
    dense = teacher.dense_run(query_QE, opened, settings.depth + 1)
    fused = teacher.teach(lexical, dense, source_Q, settings.depth)

    last = len(training)
    row_QK, teacher_QK = teacher.candidates(of_queries(fused, 0, last), last, settings.candidates)

    def done(steps: int, loss: float) -> None:
        progress(steps, settings.steps, "steps", {"loss": loss})

    vectors_NE = opened.vectors_ND
    lists = training_lists(settings, query_QE[:last], row_QK, teacher_QK, vectors_NE)
    map_EE = train_map(settings, lists, vectors_NE, normalise, done)
    identity_EE = np.eye(len(map_EE), dtype=np.float32)
    before, after = (divergence_of(settings, lists, vectors_NE, normalise, one) for one in (identity_EE, map_EE))
    guarded = compare(
        of_queries(fused, last, len(texts)),
        of_queries(dense, last, len(texts)),
        mapped_run(query_QE[last:], vectors_NE, map_EE, normalise, AGREEING + 1),
        source_Q[last:],
        settings.seed,
    )
    is_used = guarded.accepts(settings.guard_p)
    if is_used:
        np.save(out, map_EE)
    return {
        **counts,
        "divergence_before": before,
        "divergence_after": after,
        "agreement_before": guarded.before,
        "agreement_after": guarded.after,
        "agreement_p": guarded.p,
        "used": "yes" if is_used else "no",
    }


def readable(model: QuestionEncoder, queries: list[GeneratedQuery]) -> list[GeneratedQuery]:
    """Returns the queries of which the tokenizer makes tokens."""
    rows = model.rows([query.text for query in queries])
    return [query for query, row in zip(queries, rows, strict=True) if row is not None]


def of_queries(run: Run, start: int, stop: int) -> Run:
    """Returns the rows of the queries from `start` to `stop`, which then count from 0."""
    part = run.rows(slice(*np.searchsorted(run.question_R, [start, stop])))
    return Run(part.question_R - start, part.passage_R, part.score_R)
