"""A question's ranked lists: dense and BM25, each exact within a filter, and their fusion.

Shapes: Q questions, N passages, K passages of a list, D dimension. A mask [N] bool says which passages a filter
allows; None allows all. A filtered list has the order and the scores of the whole ranking.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from artifacts.objects import digests
from flows.serving.engine import Engine
from pipeline.bm25.searcher import Hits, Searcher, complete_hits
from pipeline.data.passages import Passages
from pipeline.data.runs import Run, ranked
from pipeline.data.stored import rebuild_advice
from pipeline.dense.approximate import ApproximateConfig
from pipeline.dense.index_files import Index, open_index
from pipeline.dense.search import check_model, copy_to_gpu, top_k
from pipeline.errors import InputError, JavaFailed
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.runtime.launch import gpus

if TYPE_CHECKING:  # torch is loaded while Java starts
    from pipeline.dense.exact_gpu import GpuVectors
    from pipeline.dense.question_encoder import QuestionEncoder

RARE = 4.0
"""A filter that allows n of N passages goes to Lucene if n is below RARE times depth * N / n, the number of hits that
Lucene would otherwise return. A passage of a filter costs as much time as a hit, and also serves the next questions."""
FILTERS = 8
"""Filters that Lucene keeps for the next questions."""

Mask = np.ndarray | None
Failure = InputError | JavaFailed
"""An error, instead of a question's list."""


class Ranking(NamedTuple):
    """By score descending, then passage order."""

    rows_K: np.ndarray
    scores_K: np.ndarray


@dataclass(frozen=True)
class DenseRetriever:
    """The model and the index of a run."""

    encoder: "QuestionEncoder"
    index: Index
    effort: ApproximateConfig | None
    together: int
    """Questions per forward pass."""
    on_gpu: "GpuVectors | None" = None
    """The index's vectors on a GPU."""

    def top(self, questions_QD: np.ndarray, depth: int, mask: Mask) -> list[Ranking]:
        """The best min(depth, allowed passages) of each question."""
        rows_QK, scores_QK = top_k(questions_QD, self.index, depth, self.effort, mask, self.on_gpu)
        return [Ranking(*ranking) for ranking in zip(rows_QK, scores_QK, strict=True)]


class BM25Retriever:
    """The BM25 index of a run. If its Java process ends, a new one starts. `close` ends it."""

    def __init__(self, artifact: Path, passages: Passages, searcher: Searcher) -> None:
        self.artifact, self.passages, self.searcher = artifact, passages, searcher
        self.row_of = np.full(passages.count, -1, np.int32)
        """Lucene's number of a passage -> its row; -1 if it is not known yet."""
        self.filters: dict[int, tuple[np.ndarray, int]] = {}
        """A mask's `id` -> the mask and the number of its filter in Lucene; the last used one is at the end."""

    def top(self, questions: Sequence[tuple[str, int, Mask]]) -> list[Ranking]:
        """For each (text, depth, mask) the best `depth` passages, or all that contain one of the words.

        A mask is identified by its object, and must not change.
        Raises JavaFailed if the Java process ends; the next questions use a new process.
        """
        with self._restarted():
            return self._top(questions)

    def terms(self, texts: Sequence[str]) -> list[list[str]]:
        """See `Searcher.terms`. Raises JavaFailed as `top` does."""
        with self._restarted():
            return self.searcher.terms(texts)

    @contextmanager
    def _restarted(self) -> Iterator[None]:
        """If the Java process ends, the next request has a new one."""
        try:
            yield
        except JavaFailed:
            self.close()
            self.searcher = Searcher(self.artifact)
            self.filters.clear()
            raise

    def _top(self, questions: Sequence[tuple[str, int, Mask]]) -> list[Ranking]:
        most = [most_hits(depth, mask, self.passages.count) for _, depth, mask in questions]
        filters = {
            place: self._filter(mask)
            for place, (_, _, mask) in enumerate(questions)
            if mask is not None and 0 < most[place] < self.passages.count
        }

        def search(width: Mapping[int, int]) -> list[Hits]:
            return self._hits([(questions[n][0], k, filters.get(n)) for n, k in width.items()])

        depths, masks = [depth for _, depth, _ in questions], [mask for _, _, mask in questions]
        rankings = []
        for (rows_K, scores_K), depth in zip(complete_hits(search, depths, most, masks), depths, strict=True):
            order = np.lexsort((rows_K, -scores_K))[:depth]
            rankings.append(Ranking(rows_K[order], scores_K[order]))
        while len(self.filters) > FILTERS:
            _, number = self.filters.pop(next(iter(self.filters)))
            self.searcher.drop(number)
        return rankings

    def _filter(self, mask: np.ndarray) -> int:
        """The number of the mask's filter in Lucene. Lucene gets the passages' ids only once."""
        entry = self.filters.pop(id(mask), None)
        entry = entry or (mask, self.searcher.keep(self.passages.ids(np.flatnonzero(mask))))
        self.filters[id(mask)] = entry
        return entry[1]

    def _hits(self, questions: Sequence[tuple[str, int, int | None]]) -> list[Hits]:
        hits = self.searcher.hits(questions)
        numbers = np.concatenate([numbers_K for numbers_K, _ in hits])
        new = np.unique(numbers[self.row_of[numbers] < 0])
        self.row_of[new] = self.passages.rows(self.searcher.ids(new))
        return [(self.row_of[numbers_K].astype(np.int64), scores_K) for numbers_K, scores_K in hits]

    def close(self) -> None:
        self.searcher.close()


def most_hits(depth: int, mask: Mask, count: int) -> int:
    """Maximum number of hits of a search: the passages of a rare filter, otherwise `count`, all passages."""
    allowed = count if mask is None else int(np.count_nonzero(mask))
    return allowed if allowed**2 < RARE * depth * count else count


def open_dense(engine: Engine, passages: int, often: bool) -> DenseRetriever:
    """Opens the model and the index. Raises InputError if one is damaged, or if they do not belong together.

    `often`: many questions come at once; each must get the same vector as it would get alone.
    """
    import torch

    from pipeline.dense.question_encoder import TOGETHER, question_encoder

    torch.set_num_threads(1)  # two OpenMP threads on a shared core are many times slower than one

    recipe, checkpoint = engine.recipe, engine.run.nodes[engine.model].path
    folder = engine.run.nodes[engine.part(f"index-{engine.metrics['dense']}")].path
    index = open_index(folder)
    if len(index.vectors_ND) != passages:
        counts = f"{len(index.vectors_ND):,} vectors for {passages:,} passages"
        raise InputError(f"{index.folder}: {counts}; the index belongs to another collection")
    try:
        encoder = question_encoder(checkpoint, EncoderConfig(**recipe["encoder"]), index.dimension)
    except InputError as error:
        raise InputError(f"{error}; {rebuild_advice(engine.run.name)}") from error
    known = {checkpoint / name: sha256 for name, sha256 in digests(checkpoint).items()}
    check_model(index, checkpoint, known)  # last: for a damaged model the loader has a better message
    approximate = recipe["search"]["approximate"]
    effort = approximate and ApproximateConfig(**approximate)
    together = TOGETHER if not often or encoder.is_steady() else 1
    return DenseRetriever(encoder, index, effort, together, gpu_vectors(index) if often else None)


def gpu_vectors(index: Index) -> "GpuVectors | None":
    """Returns the vectors of a flat index on a GPU; None if there is none, or if they do not fit into its memory.

    For few questions, copying the vectors takes longer than reading them.
    """
    if index.is_approximate or not gpus():
        return None
    return copy_to_gpu(index)


def as_run(lists: Sequence[Ranking]) -> Run:
    """Returns the lists of questions 0, 1, ... as a run."""
    return ranked(
        np.repeat(np.arange(len(lists)), [len(one.rows_K) for one in lists]),
        np.concatenate([one.rows_K for one in lists]),
        np.concatenate([one.scores_K for one in lists]),
    )


def as_rankings(run: Run, questions: int) -> list[Ranking]:
    """Returns the list of each question from 0 on."""
    edges = np.searchsorted(run.question_R, np.arange(questions + 1))
    return [Ranking(run.passage_R[start:stop], run.score_R[start:stop]) for start, stop in pairwise(edges)]
