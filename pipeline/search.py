"""Exact search: the best passages of each question, the same bytes for any threads, batches and blocks.

Shapes: Q questions, N passages, D dimension, K or C passages of a list.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, field_validator

from pipeline.collection import Query, passage_ids, read_qrels, read_queries
from pipeline.config import Config
from pipeline.encoder import EncoderConfig
from pipeline.errors import InputError
from pipeline.index import read_vectors
from pipeline.rescore import best, error_bound, is_certain, rescore
from pipeline.work import Metrics, Progress, Work

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from pipeline.biencoder import Encoder

SPARE = 20  # candidates beyond k, so that rounding rarely asks for a second search
QUESTIONS = 1024  # questions encoded and searched at a time
BLOCK = 1 << 25  # floats of passages in memory at a time


class SearchConfig(Config):
    splits: list[Literal["train", "dev", "test"]] = Field(min_length=1)
    """Splits whose questions are searched. Mining needs `train`."""
    unjudged: bool
    """Training questions without a judged passage too, for a cross-encoder to label (RocketQA, section 4.2.3)."""
    depth: int = Field(ge=1)
    """Passages kept for each dev and test question. 1,000 for R@1000."""
    train_depth: int = Field(ge=1)
    """Passages kept for each training question: the depth of mining."""

    @field_validator("splits")
    @classmethod
    def _each_once(cls, splits: list[str]) -> list[str]:
        return each_once(splits)


def each_once(splits: list[str]) -> list[str]:
    """A validator: a split searched twice would stand twice in the run."""
    if len({*splits}) < len(splits):
        raise ValueError("names a split twice")
    return splits


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
    from pipeline.launch import launch

    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "collection": str(collection),
        "tokens": str(tokens),
        "checkpoint": str(checkpoint),
        "index": str(index),
        "out": str(work.out),
        "token_budget": work.machine.token_budget,
    }
    machine = work.machine.model_copy(update={"ranks": 1, "torchrun": []})
    return launch("pipeline.search:run", arguments, machine, work.progress, work.checkpoints)


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
    out: str,
    token_budget: int,
) -> dict:
    """The child of `search`: encode the questions, search, write the run. Memory: a block of passages and all ids."""
    from pipeline.biencoder import check_fits, encode_rows, load_encoders
    from pipeline.inputs import question_rows, read_form
    from pipeline.ragged import Tokens
    from pipeline.runs import writer

    settings, shape = SearchConfig(**config), EncoderConfig(**encoder)
    artifact = Tokens.open(Path(tokens))
    form = read_form(shape, Path(checkpoint), artifact.specials)
    model = load_encoders(Path(checkpoint))[0].to(device)
    check_fits(model, artifact.specials, Path(checkpoint), "encoder.question_tokens", shape.question_tokens)
    vectors_ND = read_vectors(Path(index, "index"))
    ids = np.array(passage_ids(Path(collection)), dtype=object)
    wanted = list(_batches(Path(collection), settings.splits, settings.unjudged))
    total = sum(len(batch) for _, batch in wanted)
    done = 0
    with writer(Path(out)) as write:
        for split, batch in wanted:
            rows = question_rows(artifact, [place for place, _ in batch], form)
            questions_QD = encode_rows(model, rows, token_budget)
            depth = settings.train_depth if split == "train" else settings.depth
            found_QK, scores_QK = exact_top_k(questions_QD, vectors_ND, depth, device)
            query_ids = [query.query_id for _, query in batch for _ in range(found_QK.shape[1])]
            write(split, query_ids, ids[found_QK.ravel()].tolist(), scores_QK.ravel())
            done += len(batch)
            progress(done, total, "questions")
    return {"questions": total, "passages": len(vectors_ND)}


def _batches(collection: Path, splits: Sequence[str], unjudged: bool) -> Iterator[tuple[str, list[tuple[int, Query]]]]:
    """(split, [(row of queries.parquet, query)]) for at most QUESTIONS questions of a split at a time."""
    queries = list(enumerate(read_queries(collection)))
    for split in splits:
        judged = read_qrels(collection, [split]) if split == "train" and not unjudged else None
        chosen = [
            (place, query)
            for place, query in queries
            if query.split == split and (judged is None or any(r > 0 for r in judged.get(query.query_id, {}).values()))
        ]
        for start in range(0, len(chosen), QUESTIONS):
            yield split, chosen[start : start + QUESTIONS]


def encode_text(checkpoint: Path, texts: Sequence[str], config: EncoderConfig) -> np.ndarray:
    """Vectors of questions that are not in the collection, float32 [questions, dimension], on the CPU.

    The checkpoint stays loaded for the next call. Raises InputError for a question without a token.
    """
    from pipeline.biencoder import encode_rows
    from pipeline.inputs import question_row, read_form
    from pipeline.tokenizer import special_tokens
    from pipeline.tokens import encode

    encoder, tokenizer = _question_encoder(checkpoint)
    specials, _ = special_tokens(tokenizer)
    ids = encode(tokenizer, list(texts))
    for text, one in zip(texts, ids, strict=True):
        if not one:
            raise InputError(f"question {text[:80]!r}: nothing left to search for")
    form = read_form(config, checkpoint, specials)
    rows = [question_row(np.array(one), form) for one in ids]
    return encode_rows(encoder, rows, budget=2048)


@lru_cache(maxsize=1)
def _question_encoder(checkpoint: Path) -> "tuple[Encoder, Tokenizer]":
    from pipeline.biencoder import load_encoders
    from pipeline.tokenizer import read_tokenizer

    folder = checkpoint / "query" if (checkpoint / "query").is_dir() else checkpoint
    return load_encoders(checkpoint)[0], read_tokenizer(folder)


def top_k(questions_QD: np.ndarray, index: Path, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (int64) and scores (float32) of the best min(k, passages), both [questions, k], best first.

    Raises InputError where the questions have another dimension than the index.
    """
    return exact_top_k(questions_QD, read_vectors(index / "index"), k, "cpu")


def exact_top_k(
    questions_QD: np.ndarray, vectors_ND: np.ndarray, k: int, device: str, block: int = BLOCK
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and scores [Q, min(k, N)] by score descending, then passage order.

    Candidates come from a fast float32 search and are rescored in float64. Where rounding leaves open whether a
    passage outside the candidates belongs among the best k, as with many equal passages, the question is searched
    again for twice as many. So the result is a function of the vectors alone. `block`: floats of passages at a time.
    """
    if questions_QD.shape[1] != vectors_ND.shape[1]:
        raise InputError(
            f"index: vectors of dimension {vectors_ND.shape[1]}, but the encoder gives {questions_QD.shape[1]}; "
            "they are of different models"
        )
    n = len(vectors_ND)
    k = min(k, n)
    rows_QK = np.empty((len(questions_QD), k), dtype=np.int64)
    scores_QK = np.empty((len(questions_QD), k), dtype=np.float32)
    pending, width = np.arange(len(questions_QD)), min(k + SPARE, n)
    while len(pending):
        candidates, inexact, longest = _candidates(questions_QD[pending], vectors_ND, width, device, block)
        open_questions = []
        for question, rows, worst in zip(pending, candidates, inexact.min(1), strict=True):
            scores = rescore(questions_QD[question], rows, vectors_ND)
            rows_QK[question], scores_QK[question] = best(rows, scores, k)
            bound = error_bound(questions_QD[question], longest)
            if width < n and not is_certain(scores_QK[question, -1], worst, bound):
                open_questions.append(question)
        pending, width = np.array(open_questions, dtype=np.int64), min(2 * width, n)
    return rows_QK, scores_QK


def _candidates(
    questions_QD: np.ndarray, vectors_ND: np.ndarray, width: int, device: str, block: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """(rows, inexact scores, both [Q, width] in no order; the longest passage vector's length)."""
    find = _faiss if device == "cpu" else _torch
    size = max(width, block // vectors_ND.shape[1])
    rows_QC = np.empty((len(questions_QD), 0), dtype=np.int64)
    scores_QC = np.empty((len(questions_QD), 0), dtype=np.float32)
    longest = 0.0
    for start in range(0, len(vectors_ND), size):
        part = np.ascontiguousarray(vectors_ND[start : start + size])
        longest = max(longest, float(np.einsum("nd,nd->n", part, part).max()) ** 0.5)
        scores, rows = find(questions_QD, part, min(width, len(part)), device)
        rows_QC = np.concatenate([rows_QC, rows + start], axis=1)
        scores_QC = np.concatenate([scores_QC, scores], axis=1)
        if rows_QC.shape[1] > width:
            kept = np.argpartition(-scores_QC, width - 1, axis=1)[:, :width]
            rows_QC, scores_QC = np.take_along_axis(rows_QC, kept, 1), np.take_along_axis(scores_QC, kept, 1)
    return rows_QC, scores_QC, longest


def _faiss(questions_QD: np.ndarray, vectors_ND: np.ndarray, k: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    import faiss

    faiss.cvar.distance_compute_blas_threshold = 1  # else small batches leave BLAS and take seven times as long
    return faiss.knn(questions_QD, vectors_ND, k, metric=faiss.METRIC_INNER_PRODUCT)


def _torch(questions_QD: np.ndarray, vectors_ND: np.ndarray, k: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    import torch

    passages = torch.from_numpy(vectors_ND).to(device)
    scores, rows = (torch.from_numpy(questions_QD).to(device) @ passages.T).topk(k, dim=1, sorted=False)
    return scores.cpu().numpy(), rows.cpu().numpy()
