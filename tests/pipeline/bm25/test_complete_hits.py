"""Lists of BM25 that end within equal scores."""

from collections.abc import Callable, Mapping

import numpy as np

from pipeline.bm25.searcher import SPARE, WIDER, Hits, complete_hits

SCORE_K = np.repeat(np.array([3, 2, 1], np.float32), [1, 60, 39])


def search_of(requests: list[dict[int, int]]) -> Callable[[Mapping[int, int]], list[Hits]]:
    def search(width: Mapping[int, int]) -> list[Hits]:
        requests.append(dict(width))
        return [(np.arange(k), SCORE_K[:k]) for k in width.values()]

    return search


def test_a_list_that_ends_within_equal_scores_has_them_all() -> None:
    requests: list[dict[int, int]] = []
    one, tied, none = complete_hits(search_of(requests), [1, 5, 5], [100, 100, 0])
    assert requests == [{0: 1 + SPARE, 1: 5 + SPARE}, {1: WIDER * (5 + SPARE)}]
    assert len(one[0]) == 1 + SPARE
    assert (tied[1] == 2).sum() == 60
    assert len(none[0]) == 0


def test_a_filtered_list_is_searched_until_enough_passages_count() -> None:
    requests: list[dict[int, int]] = []
    mask = np.arange(100) % 20 == 0
    ((passages, scores),) = complete_hits(search_of(requests), [5], [100], [mask])
    assert passages.tolist() == [0, 20, 40, 60, 80]
    assert scores.tolist() == SCORE_K[mask].tolist()
    assert max(requests[-1].values()) == 100  # at most all passages
