"""The round trip: a question is used only if a search finds the passage that it was written for.

Shapes: Q questions, E dimension of a vector.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.config import CountOrAuto
from pipeline.data.parquet import read_parquet
from pipeline.data.passages import in_parquet
from pipeline.data.runs import Run
from pipeline.dense.index_files import open_index
from pipeline.dense.question_encoder import question_encoder
from pipeline.dense.search import check_model
from pipeline.dense.search_runs import bm25_run, dense_run
from pipeline.evaluate.fusion.fuse import EQUAL, fuse
from pipeline.modeling.biencoder import encode_rows
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.runtime.work import Progress
from pipeline.training.memory import encoding_budget

TOGETHER = 4096
"""Questions that are searched together."""
LISTS = 10
"""Length of the two fused lists, relative to `depth`; at least SHORTEST."""
SHORTEST = 100


def search(
    *,
    progress: Progress,
    device: str,
    questions: str,
    depth: int,
    collection: str,
    bm25: str,
    encoder: dict,
    checkpoint: str | None,
    index: str | None,
    token_budget: CountOrAuto,
    out: str,
) -> int:
    """Writes the rank of each question's own passage to the file `out` (int32 [Q], 0: not among the first `depth`).

    `questions`: a Parquet file with `text` and `row`, the passage's. `checkpoint` and `index` None: BM25 alone.
    Returns the number of questions that find their passage.
    """
    table = read_parquet(Path(questions))
    texts, row_Q = table["text"].to_pylist(), table["row"].to_numpy()
    longest = max(SHORTEST, LISTS * depth)
    passages = in_parquet(Path(collection))
    opened = model = None
    if checkpoint is not None and index is not None:
        opened = open_index(Path(index))
        check_model(opened, Path(checkpoint))
        model = question_encoder(Path(checkpoint), EncoderConfig(**encoder), opened.dimension)
        model.encoder.to(device)
        budget = encoding_budget(token_budget, device, model.encoder.model.config)
    ranks: list[np.ndarray] = [np.zeros(0, np.int32)]
    for start in range(0, len(texts), TOGETHER):
        part = texts[start : start + TOGETHER]
        run = bm25_run(Path(bm25), part, longest, passages, lambda *_: None)
        if model is not None and opened is not None:
            places, rows = readable(model.rows(part))
            if rows:  # else BM25 alone, as for each question without tokens
                dense = dense_run(encode_rows(model.encoder, rows, budget), opened, longest)
                dense = Run(np.array(places, np.int64)[dense.question_R], dense.passage_R, dense.score_R)
                run = fuse([run, dense], EQUAL)
        ranks.append(own_ranks(run, row_Q[start : start + TOGETHER], depth))
        progress(start + len(part), len(texts), "questions")
    rank_Q = np.concatenate(ranks)
    np.save(out, rank_Q)
    return int((rank_Q > 0).sum())


def readable(rows: Sequence[np.ndarray | None]) -> tuple[list[int], list[np.ndarray]]:
    """Returns the places and the tokens of the questions of which the tokenizer makes tokens."""
    places, found = [], []
    for place, row in enumerate(rows):
        if row is not None:
            places.append(place)
            found.append(row)
    return places, found


def own_ranks(run: Run, row_Q: np.ndarray, depth: int) -> np.ndarray:
    """Returns the rank of each question's own passage, int32 [Q]; 0 if it is not among the first `depth`."""
    rank_Q = np.zeros(len(row_Q), np.int32)
    found_R = (run.passage_R == row_Q[run.question_R]) & (run.rank_R <= depth)
    rank_Q[run.question_R[found_R]] = run.rank_R[found_R]
    return rank_Q
