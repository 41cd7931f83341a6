"""A question's ranked lists: dense and BM25, each exact within a filter, and joined.

Shapes: Q questions, N passages, K passages of a list, D dimension. A mask [N] bool says which passages a filter
allows; None allows all. A list within it is the whole ranking, filtered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from artifacts.objects import digests
from flows.serving.engine import Engine
from pipeline.bm25.bm25 import Ended
from pipeline.bm25.searcher import Searcher
from pipeline.data.passages import Passages
from pipeline.data.runs import ranked
from pipeline.data.stored import again
from pipeline.dense.approximate import ApproximateConfig
from pipeline.dense.index_files import Index, open_index
from pipeline.dense.search import check_model, top_k
from pipeline.errors import InputError
from pipeline.evaluate.fusion import Choice, fuse
from pipeline.modeling.encoder_config import EncoderConfig

if TYPE_CHECKING:  # torch is loaded while Java starts
    from pipeline.dense.question_encoder import QuestionEncoder

SPARE = 16
"""Hits beyond a list's end, so that equal scores rarely ask for a second search."""
WIDER = 4
"""How many times as many hits a next search asks for, where the filter or equal scores left too few."""
RARE = 4.0
"""A filter that lets n of N passages through is sent to Lucene where n is below RARE times depth * N / n, the hits that
it would else have to give: a passage sent takes as long as a hit, and serves the next questions too."""
KEPT = 8
"""Filters that Lucene holds for the next questions."""

Mask = np.ndarray | None
Failed = InputError | Ended
"""What stands in the place of one question's list."""


class Ranking(NamedTuple):
    """By score descending, then passage order."""

    rows_K: np.ndarray
    scores_K: np.ndarray


@dataclass(frozen=True)
class Dense:
    encoder: "QuestionEncoder"
    index: Index
    effort: ApproximateConfig | None
    together: int
    """Questions that share a forward call."""

    def top(self, questions_QD: np.ndarray, depth: int, mask: Mask) -> list[Ranking]:
        """The best min(depth, allowed passages) of each question."""
        rows_QK, scores_QK = top_k(questions_QD, self.index, depth, self.effort, mask)
        return [Ranking(*found) for found in zip(rows_QK, scores_QK, strict=True)]


class Lexical:
    """BM25 of an artifact; a searcher whose Java ended is replaced by a new one. Ended with `close`."""

    def __init__(self, artifact: Path, passages: Passages, searcher: Searcher) -> None:
        self.artifact, self.passages, self.searcher = artifact, passages, searcher
        self.row_of = np.full(passages.count, -1, np.int32)
        """Lucene's number -> row, -1 where not met yet."""
        self.filters: dict[int, tuple[np.ndarray, int]] = {}
        """A mask's `id` -> the mask and the number of its filter in Lucene, the last asked for at the end."""

    def top(self, asked: Sequence[tuple[str, int, Mask]]) -> list[Ranking]:
        """Of each (text, depth, mask) the best `depth`, or all that hold one of its words.

        A mask is never written to, and known again by being the same object.
        Raises Ended where Java did; it is started again for the next questions.
        """
        try:
            return self._top(asked)
        except Ended:
            self.close()
            self.searcher = Searcher(self.artifact)
            self.filters.clear()
            raise

    def _top(self, asked: Sequence[tuple[str, int, Mask]]) -> list[Ranking]:
        found = [Ranking(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(asked)
        most = [most_hits(depth, mask, self.passages.count) for _, depth, mask in asked]
        width = {place: depth + SPARE for place, (_, depth, _) in enumerate(asked) if most[place]}
        filters = {
            place: self._filter(mask)
            for place, (_, _, mask) in enumerate(asked)
            if mask is not None and 0 < most[place] < self.passages.count
        }
        while width:
            hits = self._hits([(asked[n][0], min(k, most[n]), filters.get(n)) for n, k in width.items()])
            wider = {}
            for (place, k), (rows_K, scores_K) in zip(width.items(), hits, strict=True):
                _, depth, mask = asked[place]
                last = scores_K[-1] if k < most[place] and len(rows_K) == k else -np.inf
                if mask is not None:
                    rows_K, scores_K = rows_K[mask[rows_K]], scores_K[mask[rows_K]]
                if last > -np.inf and (scores_K > last).sum() < depth:
                    wider[place] = WIDER * k
                by = np.lexsort((rows_K, -scores_K))[:depth]
                found[place] = Ranking(rows_K[by], scores_K[by])
            width = wider
        while len(self.filters) > KEPT:
            _, number = self.filters.pop(next(iter(self.filters)))
            self.searcher.drop(number)
        return found

    def _filter(self, mask: np.ndarray) -> int:
        """The number of its filter in Lucene, which is told the passages' ids once."""
        held = self.filters.pop(id(mask), None)
        held = held or (mask, self.searcher.keep(self.passages.ids(np.flatnonzero(mask))))
        self.filters[id(mask)] = held
        return held[1]

    def _hits(self, questions: Sequence[tuple[str, int, int | None]]) -> list[tuple[np.ndarray, np.ndarray]]:
        hits = self.searcher.hits(questions)
        numbers = np.concatenate([numbers_K for numbers_K, _ in hits])
        new = np.unique(numbers[self.row_of[numbers] < 0])
        self.row_of[new] = self.passages.rows(self.searcher.ids(new))
        return [(self.row_of[numbers_K].astype(np.int64), scores_K) for numbers_K, scores_K in hits]

    def close(self) -> None:
        self.searcher.close()


def most_hits(depth: int, mask: Mask, count: int) -> int:
    """Hits that Lucene can be asked for: of a rare filter its passages, else `count`, those of the collection."""
    allowed = count if mask is None else int(np.count_nonzero(mask))
    return allowed if allowed**2 < RARE * depth * count else count


def open_dense(engine: Engine, passages: int, often: bool) -> Dense:
    """Raises InputError for a model or an index that is damaged, and for an index of another model or collection.

    `often`: questions will be asked together, and are to get the same vectors as alone.
    """
    from pipeline.dense.question_encoder import TOGETHER, question_encoder

    recipe, checkpoint = engine.recipe, engine.run.nodes[engine.model].path
    folder = engine.run.nodes[engine.part(f"index-{engine.metrics['dense']}")].path
    index = open_index(folder)
    if len(index.vectors_ND) != passages:
        found = f"{len(index.vectors_ND):,} vectors for {passages:,} passages"
        raise InputError(f"{index.folder}: {found}; it is of another collection")
    try:
        encoder = question_encoder(checkpoint, EncoderConfig(**recipe["encoder"]))
    except InputError as error:
        raise InputError(f"{error}; {again(engine.run.name)}") from error
    known = {checkpoint / name: sha256 for name, sha256 in digests(checkpoint).items()}
    check_model(index, checkpoint, known)  # last: of a damaged model the loader says more
    given = recipe["search"]["approximate"]
    effort = given and ApproximateConfig(**given)
    return Dense(encoder, index, effort, TOGETHER if not often or encoder.is_steady() else 1)


def join(lexical: Sequence[Ranking], dense: Sequence[Ranking], choice: Choice, reciprocal_k: float) -> list[Ranking]:
    """Each question's two lists as one; they must be as deep as those that the weight was chosen on."""
    runs = [
        ranked(
            np.repeat(np.arange(len(lists)), [len(one.rows_K) for one in lists]),
            np.concatenate([one.rows_K for one in lists]),
            np.concatenate([one.scores_K for one in lists]),
        )
        for lists in (lexical, dense)
    ]
    fused = fuse(runs, choice, reciprocal_k)
    edges = np.searchsorted(fused.question_R, np.arange(len(lexical) + 1))
    return [Ranking(fused.passage_R[start:stop], fused.score_R[start:stop]) for start, stop in pairwise(edges)]
