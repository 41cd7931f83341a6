"""Search: the best passages of each question, the same bytes for any threads, batches and blocks.

Shapes: Q questions, N passages, D dimension, K passages of a list.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from pipeline.config import Config, each_once
from pipeline.data.collection import Query, passage_id_array, read_queries, train_positives
from pipeline.data.stored import AGAIN
from pipeline.dense import shard_reuse
from pipeline.dense.approximate import ApproximateConfig, approximate_top_k, recall
from pipeline.dense.exact import Found, exact_top_k
from pipeline.dense.index_files import Index, open_index
from pipeline.errors import InputError
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.notices import noticed
from pipeline.runtime import shards
from pipeline.runtime.spans import Span, shard_spans
from pipeline.runtime.work import Job, Metrics, Progress, Work

SHARD = {"cpu": 256, "cuda": 8192}
"""Questions of a list file. On the CPU few, so that all cores share them; a GPU is sent the passages for each file. Not
by how many processes there are: questions that are encoded in other batches differ in their last bits."""
COMPARED = 1000  # questions whose exact lists are found too, where the index is approximate

Asked = Sequence[tuple[int, Query]]
"""(row of queries.parquet, query) of each question."""


class SearchConfig(Config):
    splits: list[Literal["train", "dev", "test"]] = Field(min_length=1)
    """Splits whose questions are searched. Mining needs `train`."""
    unjudged: bool
    """Training questions without a judged passage too, for a cross-encoder to label (RocketQA, section 4.2.3)."""
    depth: int = Field(ge=1)
    """Passages kept for each dev and test question. 1,000 for R@1000."""
    train_depth: int = Field(ge=1)
    """Passages kept for each training question: the depth of mining."""
    approximate: ApproximateConfig | None
    """Of no matter where `index.kind` is flat."""

    @field_validator("splits")
    @classmethod
    def _each_once(cls, splits: list[str]) -> list[str]:
        return each_once(splits)


def libraries(config: SearchConfig) -> tuple[str, ...]:
    """FAISS, where what is found is its own."""
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
    """Write `run.parquet` and `run.trec`: the best passages of every question of `config.splits`.

    Training questions without a judged passage are left out unless `config.unjudged`: nothing is mined for them.
    """
    from pipeline.modeling.inputs import cut_notice, read_form, unread_of_questions
    from pipeline.runtime.launch import device_of, of_shards
    from pipeline.runtime.processes import workers
    from pipeline.tokenization.token_files import Tokens

    asked = _asked(collection, config.splits, config.unjudged)
    # A folder for each size: on a machine with a GPU, lists of a run without one would be of other questions.
    size = SHARD[device_of(work.machine)]
    folder = work.checkpoints / f"lists-{size}"
    folder.mkdir(parents=True, exist_ok=True)
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
    job = Job("pipeline.dense.search:run", arguments, folder, _spans(asked, size), "questions")
    shards.finish(job, work, of_shards(work.machine), workers(work.machine))
    artifact = Tokens.open(tokens)
    form = read_form(encoder, checkpoint, artifact.specials)
    row_Q = np.array([row for row, _ in asked], np.int64)
    unread_Q = unread_of_questions(artifact, row_Q, form)
    total = int(artifact.queries.lengths[row_Q].sum())
    cut = cut_notice("questions", unread_Q, total, "encoder.question_tokens", lambda i: asked[i][1].query_id)
    return {**_write(asked, job, collection, work.out), **noticed([cut])}


def run(
    *,
    progress: Progress,
    device: str,
    config: dict,
    encoder: dict,
    collection: str,
    tokens: str,
    checkpoint: str,
    index: str,
    folder: str,
    size: int,
    token_budget: int,
    workers: int,
    numbers: list[int] | None,
) -> dict:
    """The child of `search`: the lists of `size` questions each that `folder` lacks, those of `numbers` (None: all).

    On CPU `workers` single-threaded forks share the model and the index; on GPUs a rank each. Memory: an approximate
    index (for each rank), and for each process a block of passages.
    """
    settings = SearchConfig(**config)
    asked = _asked(Path(collection), settings.splits, settings.unjudged)
    make = _maker(settings, EncoderConfig(**encoder), asked, tokens, checkpoint, index, token_budget, device)
    spans = _spans(asked, size)
    shards.build(
        Path(folder), spans, make, device=device, unit="questions", progress=progress, workers=workers, numbers=numbers
    )
    return {}


def _maker(
    settings: SearchConfig,
    shape: EncoderConfig,
    asked: Asked,
    tokens: str,
    checkpoint: str,
    index: str,
    token_budget: int,
    device: str,
) -> Callable[[int, int, shards.Tick], np.ndarray]:
    """A function that searches a span of `asked` and gives a record (see `_record`) for each of its questions."""
    from pipeline.modeling.biencoder import check_fits, encode_rows, load_encoders
    from pipeline.modeling.inputs import question_rows, read_form
    from pipeline.tokenization.token_files import Tokens

    artifact = Tokens.open(Path(tokens))
    form = read_form(shape, Path(checkpoint), artifact.specials)
    model = load_encoders(Path(checkpoint))[0].to(device)
    check_fits(model, artifact.specials, Path(checkpoint), "encoder.question_tokens", shape.question_tokens)
    opened = open_index(Path(index))
    check_model(opened, Path(checkpoint))
    if opened.is_approximate:
        _ = opened.faiss  # read before the forks, which then share its memory
    of_recall = [i for i, (_, query) in enumerate(asked) if query.split != "train" or settings.splits == ["train"]]
    compared = of_recall[:COMPARED] if opened.is_approximate else []

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        rows = question_rows(artifact, [row for row, _ in asked[start:stop]], form)
        questions_QD = encode_rows(model, rows, token_budget)
        depth = settings.train_depth if asked[start][1].split == "train" else settings.depth
        begun = time.monotonic()
        (found_QK, scores_QK), short = _top_k(questions_QD, opened, depth, settings.approximate, None, device)
        lists = np.zeros(stop - start, _record(found_QK.shape[1]))
        lists["rows"], lists["scores"], lists["recall"] = found_QK, scores_QK, np.nan
        lists["seconds"][0], lists["short"][0] = time.monotonic() - begun, short
        some = [i - start for i in compared if start <= i < stop]
        if some:
            exact_QK, _ = exact_top_k(questions_QD[some], opened.vectors_ND, depth, opened.longest, device)
            lists["recall"][some] = recall(found_QK[some], exact_QK, (depth, 10))
        tick(stop - start)
        return lists

    return make


def _record(k: int) -> np.dtype:
    """Of a question: its list; its recall at the depth and at 10 (NaN: not compared); in the first of a batch, the
    seconds of the batch's search and how many of its questions were searched exactly for want of passages."""
    lists = [("rows", np.int64, (k,)), ("scores", np.float32, (k,)), ("recall", np.float64, (2,))]
    return np.dtype([*lists, ("seconds", np.float64), ("short", np.int64)])


def _write(asked: Asked, job: Job, collection: Path, out: Path) -> Metrics:
    """The run of all questions, and its figures; questions a second are of one core or GPU. Memory: passages' ids."""
    import pyarrow as pa

    from pipeline.data.runs import writer

    ids = passage_id_array(collection)
    seconds, instead = 0.0, 0
    recalls = [np.empty((0, 2))]
    with writer(out) as write:
        for number, (start, stop) in enumerate(job.spans):
            lists = np.load(job.folder / shards.name(number), mmap_mode="r")
            query_ids = [query.query_id for _, query in asked[start:stop] for _ in range(lists["rows"].shape[1])]
            passage_ids = ids.take(pa.array(lists["rows"].ravel())).to_pylist()
            write(asked[start][1].split, query_ids, passage_ids, lists["scores"].ravel())
            seconds, instead = seconds + lists["seconds"].sum(), instead + int(lists["short"].sum())
            recalls.append(lists["recall"][~np.isnan(lists["recall"][:, 0])])
    figures: Metrics = {"questions": len(asked), "passages": len(ids)}
    figures["questions_per_second"] = round(len(asked) / max(seconds, 1e-6), 1)
    if len(found := np.concatenate(recalls)):
        shares = found.mean(0)
        figures |= {"recall": round(shares[0], 4), "recall_10": round(shares[1], 4), "searched_exactly": instead}
    return figures


def _asked(collection: Path, splits: Sequence[str], unjudged: bool) -> Asked:
    """The questions that are searched, split by split."""
    queries = list(enumerate(read_queries(collection)))
    judged = train_positives(collection) if "train" in splits and not unjudged else None

    def wanted(query: Query) -> bool:
        return query.split != "train" or judged is None or query.query_id in judged

    return [(row, query) for split in splits for row, query in queries if query.split == split and wanted(query)]


def _spans(asked: Asked, size: int) -> list[Span]:
    """At most `size` questions of one split each."""
    changes = [i for i in range(1, len(asked)) if asked[i][1].split != asked[i - 1][1].split]
    edges = pairwise([0, *changes, len(asked)])
    return [(low + start, low + stop) for low, high in edges for start, stop in shard_spans(high - low, size)]


def top_k(
    questions_QD: np.ndarray,
    index: Index,
    k: int,
    effort: ApproximateConfig | None = None,
    allowed_N: np.ndarray | None = None,
) -> Found:
    """Rows (int64) and scores (float32) of the best passages, both [questions, min(k, allowed passages)], best first.

    `effort`: how hard to look where the index is approximate; None: exactly, through all vectors.
    `allowed_N`, bool: the passages to choose from; the list is then the exact one among them, or what an approximate
    index finds, filtered, where that is long enough. Raises InputError where the questions have another dimension.
    """
    return _top_k(questions_QD, index, k, effort, allowed_N, "cpu")[0]


def _top_k(
    questions_QD: np.ndarray,
    index: Index,
    k: int,
    effort: ApproximateConfig | None,
    allowed_N: np.ndarray | None,
    device: str,
) -> tuple[Found, int]:
    """(rows and scores, questions whose approximate lists would have been too short)."""
    if allowed_N is not None and allowed_N.shape != (len(index.vectors_ND),):
        raise ValueError(f"allowed_N: {allowed_N.shape} for {len(index.vectors_ND)} passages")
    if index.is_approximate and effort is not None:
        return approximate_top_k(questions_QD, index, k, effort, allowed_N)
    rows_A = None if allowed_N is None else np.flatnonzero(allowed_N)
    return exact_top_k(questions_QD, index.vectors_ND, k, index.longest, device, rows_A), 0


def check_model(index: Index, checkpoint: Path, known: Mapping[Path, str] = MappingProxyType({})) -> None:
    """Raise InputError where the index was not made by the model that encodes the questions.

    `known`: see `reuse.model`.
    """
    if index.model != shard_reuse.model(checkpoint, known):
        other = f"made by another model than {checkpoint}, which encodes the questions, or one of the two is damaged"
        raise InputError(f"{index.folder}: {other}; {AGAIN}")
