"""The child process of the stage `adapt`: lists of generated queries, the training, and whether its result is used."""

from pathlib import Path

import numpy as np

from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.guard import AGREEING, compare
from pipeline.adapt.linear_map import training_lists
from pipeline.adapt.queries import GeneratedQuery, generate_queries
from pipeline.adapt.students import PassageInputs, TeacherLists, with_both_encoders, with_map, with_query_encoder
from pipeline.adapt.teacher import candidates, teach
from pipeline.adapt.training import Training
from pipeline.data.passages import in_parquet
from pipeline.data.runs import Run
from pipeline.dense.index_files import open_index
from pipeline.dense.question_encoder import QuestionEncoder, question_encoder
from pipeline.dense.search import check_model
from pipeline.dense.search_runs import bm25_run, dense_run
from pipeline.modeling.biencoder import encode_rows
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import read_form
from pipeline.runtime.work import Machine, Metrics, Progress
from pipeline.tokenization.token_files import Tokens


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
    passages: dict | None,
    out: str,
    checkpoints: str,
    machine: dict,
) -> Metrics:
    """Writes what was trained to the folder `out` if it is used: `map.npy` (float32 [E, E]), or encoders.

    `passages`: None, or `tokens`, the artifact, and `limit`, the tokens of the longest passage, if passages are
    encoded. Returns the stage's metrics.
    """
    settings, own_machine = AdaptConfig(**config), Machine.model_validate(machine)
    opened = open_index(Path(index))
    check_model(opened, Path(checkpoint))
    model = question_encoder(Path(checkpoint), EncoderConfig(**encoder))
    training_queries, guard = (readable(model, queries) for queries in generate_queries(Path(collection), settings))
    counts: Metrics = {"queries": len(training_queries), "guard_queries": len(guard)}
    # A list needs two passages besides the query's own.
    if not training_queries or not guard or len(opened.vectors_ND) < 3:
        return {**counts, "used": "no"}
    texts = [query.text for query in (*training_queries, *guard)]
    source_Q = np.array([query.passage for query in (*training_queries, *guard)], np.int64)
    ids = [row for row in model.rows(texts) if row is not None]
    model.encoder.to(device)
    training = Training(settings, Path(checkpoint), Path(out), Path(checkpoints), own_machine, device, progress)
    query_QE = encode_rows(model.encoder, ids, training.budget(model.encoder))
    depth = max(settings.depth, AGREEING)  # the guard compares lists of equal length
    bm25_lists = bm25_run(Path(bm25), texts, depth + 1, in_parquet(Path(collection)), progress)
    dense_lists = dense_run(query_QE, opened, depth + 1)
    fused = teach(bm25_lists, dense_lists, source_Q, settings.depth)

    last = len(training_queries)
    row_QK, teacher_QK = candidates(of_queries(fused, 0, last), last, settings.candidates)
    lists = training_lists(settings, query_QE[:last], row_QK, teacher_QK, opened.vectors_ND)
    given = TeacherLists(opened, model.encoder.normalise, last, ids, query_QE, lists)
    teacher_run = of_queries(fused, last, len(texts))
    if settings.trains == "map":
        adapted = with_map(given, training)
    elif settings.trains == "query_encoder":
        adapted = with_query_encoder(given, training)
    else:
        assert passages is not None
        data = Tokens.open(Path(passages["tokens"]))
        form = read_form(EncoderConfig(**encoder), training.checkpoint, data.specials)
        listed = of_queries(teach(bm25_lists, dense_lists, source_Q, depth), last, len(texts))
        adapted = with_both_encoders(given, training, PassageInputs(data, form, passages["limit"]), listed)
    guarded = compare(
        teacher_run, of_queries(dense_lists, last, len(texts)), adapted.guard_run, source_Q[last:], settings.seed
    )
    is_used = guarded.accepts(settings.guard_p)
    if is_used:
        adapted.write()
    return {
        **counts,
        "divergence_before": given.divergence(settings, query_QE),
        "divergence_after": adapted.divergence,
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
