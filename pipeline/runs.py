"""Runs: ranked lists of passages. Order is score descending, then passage order; ranks count from 1 without gaps."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

Write = Callable[[str, Sequence[str], Sequence[str], np.ndarray], None]


@contextmanager
def writer(folder: Path) -> Iterator[Write]:
    """Write `run.parquet` and `run.trec` (dev and test only) piece by piece.

    `with writer(out) as write: write(split, query_ids_R, passage_ids_R, scores_R)`, rows of a question together and
    best first (see `order`), every question in one call.
    """
    raise NotImplementedError
    yield
