"""The child process of the stage `search`: lists of the best passages, batch by batch.

Shapes: Q questions, D dimension, K passages of a list.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.config import CountOrAuto
from pipeline.dense import sharded_search
from pipeline.dense.approximate import recall
from pipeline.dense.exact import exact_top_k
from pipeline.dense.exact_gpu import load
from pipeline.dense.index_files import open_index
from pipeline.dense.list_records import records
from pipeline.dense.search import Questions, SearchConfig, check_model, counted_top_k, gpu_room, questions_of, spans_of
from pipeline.modeling.biencoder import check_fits, encode_rows, frozen_encoders
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import question_rows, read_form
from pipeline.runtime import shards
from pipeline.runtime.work import Progress
from pipeline.tokenization.token_files import Tokens
from pipeline.training.memory import encoding_budget

COMPARED = 1000  # questions whose exact lists are computed too, if the index is approximate


def search_lists(
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
    token_budget: CountOrAuto,
    workers: int,
    numbers: list[int] | None,
) -> dict:
    """Child process of `search`: writes the missing lists `numbers` (None: all) of `size` questions each to `folder`.

    On CPU `workers` single-threaded forks share the model and the index; on GPUs there is one rank per GPU, and the
    ranks share the vectors if they do not fit into one GPU (sharded_search.py). Memory: an approximate index per rank,
    and a block of passages per process.
    """
    settings = SearchConfig(**config)
    questions = questions_of(Path(collection), settings.splits, settings.unjudged_train_questions)
    spans = spans_of(questions, size)
    opened = open_index(Path(index))
    shape = EncoderConfig(**encoder)
    encode = _encoder(shape, opened.dimension, questions, Path(tokens), Path(checkpoint), token_budget, device)
    check_model(opened, Path(checkpoint))
    if opened.is_approximate:
        _ = opened.faiss  # read before the forks, which then share its memory
    of_recall = [i for i, (_, query) in enumerate(questions) if query.split != "train" or settings.splits == ["train"]]
    compared = of_recall[:COMPARED] if opened.is_approximate else []
    room = gpu_room(device)

    def depth(start: int) -> int:
        return settings.train_depth if questions[start][1].split == "train" else settings.depth

    on_gpu = None
    if room is not None and (compared or not opened.is_approximate):
        on_gpu = load(opened.vectors_ND, device, room)
    if room is not None and on_gpu is None and not opened.is_approximate:
        batches = sharded_search.Batches(spans, range(len(spans)) if numbers is None else numbers, encode, depth)
        room = max(room, sharded_search.LEAST)
        sharded_search.build_lists(
            Path(folder), batches, opened.vectors_ND, opened.longest, device=device, room=room, progress=progress
        )
        return {}

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        questions_QD = encode(start, stop)
        started_at = time.monotonic()
        found, short = counted_top_k(questions_QD, opened, depth(start), settings.approximate, None, on_gpu)
        lists = records(found, time.monotonic() - started_at, short)
        some = [i - start for i in compared if start <= i < stop]
        if some:
            exact_QK, _ = exact_top_k(
                questions_QD[some], opened.vectors_ND, depth(start), opened.longest, on_gpu=on_gpu
            )
            lists["recall"][some] = recall(found[0][some], exact_QK, (depth(start), 10))
        tick(stop - start)
        return lists

    shards.build_shards(
        Path(folder), spans, make, device=device, unit="questions", progress=progress, workers=workers, numbers=numbers
    )
    return {}


def _encoder(
    shape: EncoderConfig,
    dimension: int,
    questions: Questions,
    tokens: Path,
    checkpoint: Path,
    token_budget: CountOrAuto,
    device: str,
) -> Callable[[int, int], np.ndarray]:
    """Returns a function that returns the vectors of a span of questions, cut to the index's dimension."""
    artifact = Tokens.open(tokens)
    form = read_form(shape, checkpoint, artifact.specials)
    model = frozen_encoders(checkpoint)[0].cut_to(dimension).to(device)
    check_fits(model, artifact.specials, checkpoint, "encoder.question_tokens", shape.question_tokens)
    budget = encoding_budget(token_budget, device, model.model.config)

    def encode(start: int, stop: int) -> np.ndarray:
        return encode_rows(model, question_rows(artifact, [row for row, _ in questions[start:stop]], form), budget)

    return encode
