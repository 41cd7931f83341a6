"""Search: the best passages of each question, with the same bytes for any threads, batches and blocks.

Shapes: Q questions, N passages, D dimension, K passages of a list.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, field_validator

from pipeline.config import Config, each_once
from pipeline.data.collection import Query, passage_id_array, read_queries, train_positives
from pipeline.data.documents import are_cut
from pipeline.data.stored import AGAIN
from pipeline.dense import shard_reuse
from pipeline.dense.approximate import ApproximateConfig, approximate_top_k
from pipeline.dense.exact import Found, exact_top_k
from pipeline.dense.index_files import Index
from pipeline.errors import InputError
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_files.sentence_transformers_files import side
from pipeline.notices import noticed
from pipeline.runtime import shards
from pipeline.runtime.spans import Span, shard_spans
from pipeline.runtime.work import Job, Metrics, Work

if TYPE_CHECKING:
    from pipeline.dense.exact_gpu import GpuVectors

SHARD = {"cpu": 256, "mps": 1024, "cuda": 8192}
"""Questions of a list file. Few on the CPU, so that all cores share them; a GPU is faster with many. On MPS one process
encodes them, and its threads search.
Independent of the number of processes: questions encoded in other batches differ in their last bits."""

Questions = Sequence[tuple[int, Query]]
"""(row of queries.parquet, query) of each question."""


class SearchConfig(Config):
    splits: list[Literal["train", "dev", "test"]] = Field(min_length=1)
    """Splits whose questions are searched. Mining needs `train`."""
    unjudged_train_questions: bool
    """Also search training questions without a judged passage, for pseudo-labels (RocketQA, section 4.2.3)."""
    depth: int = Field(ge=1)
    """Passages kept for each dev and test question. 1,000 for R@1000."""
    train_depth: int = Field(ge=1)
    """Passages kept for each training question: the depth of mining."""
    approximate: ApproximateConfig | None
    """Unused if `index.kind` is flat."""

    @field_validator("splits")
    @classmethod
    def _each_once(cls, splits: list[str]) -> list[str]:
        return each_once(splits)


def libraries(config: SearchConfig) -> tuple[str, ...]:
    """Returns FAISS if the results come from it."""
    return () if config.approximate is None else ("faiss",)


def search(
    config: SearchConfig,
    encoder: EncoderConfig,
    collection: Path,
    tokens: Path,
    checkpoint: Path,
    index: Path,
    work: Work,
) -> Metrics:
    """Writes `run.parquet` and `run.trec`: the best passages of every question of `config.splits`.

    Training questions without a judged passage are left out, as they get no mined negatives, unless
    `config.unjudged_train_questions`.
    """
    from pipeline.modeling.inputs import cut_notice, read_form, to_change, unread_metrics, unread_of_questions
    from pipeline.runtime.launch import device_of, of_shards
    from pipeline.runtime.processes import workers
    from pipeline.tokenization.token_files import Tokens

    questions = questions_of(collection, config.splits, config.unjudged_train_questions)
    # One folder per size: list files of a CPU run cover other questions than those of a GPU run.
    size = SHARD[device_of(work.machine)]
    folder = shards.folder_of_model(work, f"lists-{size}")
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "collection": str(collection),
        "tokens": str(tokens),
        "checkpoint": str(checkpoint),
        "index": str(index),
        "folder": str(folder),
        "size": size,
        "token_budget": work.machine.token_budget,
    }
    job = Job("pipeline.dense.search_lists:search_lists", arguments, folder, spans_of(questions, size), "questions")
    shards.finish(job, work, of_shards(work.machine), workers(work.machine))
    artifact = Tokens.open(tokens)
    form = read_form(encoder, checkpoint, artifact.specials)
    row_Q = np.array([row for row, _ in questions], np.int64)
    unread_Q = unread_of_questions(artifact, row_Q, form)
    cut = unread_metrics("questions", unread_Q, artifact.queries.lengths[row_Q])
    model = side(checkpoint, "query")
    field = to_change("encoder.question_tokens", encoder.question_tokens, model, "shorten the questions")
    lines = cut_notice("questions", cut, unread_Q, lambda i: questions[i][1].query_id, field)
    return {**_write(questions, job, collection, work.out), **cut, **noticed(lines)}


def gpu_room(device: str) -> int | None:
    """Returns the bytes that vectors may take on the GPU of each rank: on all ranks the same. None: no CUDA device."""
    from pipeline.dense.exact_gpu import room_for_vectors
    from pipeline.training.memory import free_bytes, least_of_ranks

    return least_of_ranks(room_for_vectors(free_bytes(device))) if device == "cuda" else None


def copy_to_gpu(index: Index) -> "GpuVectors | None":
    """Returns the index's vectors for exact searches on this process's GPU; None if they do not fit."""
    from pipeline.dense.exact_gpu import load

    room = gpu_room("cuda")
    return None if room is None else load(index.vectors_ND, "cuda", room)


def _write(questions: Questions, job: Job, collection: Path, out: Path) -> Metrics:
    """Writes the run and returns its figures; questions per second are per core or GPU. Memory: passage ids."""
    import pyarrow as pa

    from pipeline.data.runs import writer

    ids = passage_id_array(collection)
    seconds, searched_exactly = 0.0, 0
    recalls = [np.empty((0, 2))]
    with writer(out, are_cut(collection)) as write:
        for number, (start, stop) in enumerate(job.spans):
            lists = np.load(job.folder / shards.name(number), mmap_mode="r")
            query_ids = [query.query_id for _, query in questions[start:stop] for _ in range(lists["rows"].shape[1])]
            passage_ids = ids.take(pa.array(lists["rows"].ravel())).to_pylist()
            write(questions[start][1].split, query_ids, passage_ids, lists["scores"].ravel())
            seconds += lists["seconds"].sum()
            searched_exactly += int(lists["short"].sum())
            recalls.append(lists["recall"][~np.isnan(lists["recall"][:, 0])])
    figures: Metrics = {"questions": len(questions), "passages": len(ids)}
    figures["questions_per_second"] = round(len(questions) / max(seconds, 1e-6), 1)
    if len(found := np.concatenate(recalls)):
        shares = found.mean(0)
        figures |= {
            "recall": round(shares[0], 4),
            "recall_10": round(shares[1], 4),
            "searched_exactly": searched_exactly,
        }
    return figures


def questions_of(collection: Path, splits: Sequence[str], unjudged: bool) -> Questions:
    """Returns the questions to search, split by split."""
    queries = list(enumerate(read_queries(collection)))
    judged = train_positives(collection) if "train" in splits and not unjudged else None

    def wanted(query: Query) -> bool:
        return query.split != "train" or judged is None or query.query_id in judged

    return [(row, query) for split in splits for row, query in queries if query.split == split and wanted(query)]


def spans_of(questions: Questions, size: int) -> list[Span]:
    """Returns spans of at most `size` questions, each of one split."""
    changes = [i for i in range(1, len(questions)) if questions[i][1].split != questions[i - 1][1].split]
    edges = pairwise([0, *changes, len(questions)])
    return [(low + start, low + stop) for low, high in edges for start, stop in shard_spans(high - low, size)]


def top_k(
    questions_QD: np.ndarray,
    index: Index,
    k: int,
    effort: ApproximateConfig | None = None,
    allowed_N: np.ndarray | None = None,
    on_gpu: "GpuVectors | None" = None,
) -> Found:
    """Returns rows (int64) and scores (float32) of the best passages, [questions, min(k, allowed)], best first.

    `effort`: settings of the search in an approximate index; None: search all vectors exactly.
    `allowed_N`, bool: the passages to choose from. The list is then exact among them, or the filtered result of an
    approximate index if that is long enough. `on_gpu`: see `copy_to_gpu`. Raises InputError if the questions have
    another dimension.
    """
    return counted_top_k(questions_QD, index, k, effort, allowed_N, on_gpu)[0]


def counted_top_k(
    questions_QD: np.ndarray,
    index: Index,
    k: int,
    effort: ApproximateConfig | None,
    allowed_N: np.ndarray | None,
    on_gpu: "GpuVectors | None",
) -> tuple[Found, int]:
    """Returns (rows and scores, number of questions whose approximate lists were too short)."""
    if allowed_N is not None and allowed_N.shape != (len(index.vectors_ND),):
        raise ValueError(f"allowed_N: {allowed_N.shape} for {len(index.vectors_ND)} passages")
    if index.is_approximate and effort is not None:
        return approximate_top_k(questions_QD, index, k, effort, allowed_N)
    rows_A = None if allowed_N is None else np.flatnonzero(allowed_N)
    return exact_top_k(questions_QD, index.vectors_ND, k, index.longest, rows_A, on_gpu=on_gpu), 0


def check_model(index: Index, checkpoint: Path, known: Mapping[Path, str] = MappingProxyType({})) -> None:
    """Raises InputError if the index was built with another model than the one that encodes the questions.

    `known`: see `shard_reuse.model`.
    """
    if index.model != shard_reuse.model(checkpoint, known):
        other = f"built with another model than {checkpoint}, which encodes the questions, or one of the two is damaged"
        raise InputError(f"{index.folder}: {other}; {AGAIN}")
