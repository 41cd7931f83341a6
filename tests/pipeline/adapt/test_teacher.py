"""The teacher's lists."""

import numpy as np
from adapted import CONFIG, Corpus

from pipeline.adapt.fit import of_queries
from pipeline.adapt.queries import generate_queries
from pipeline.adapt.teacher import candidates, teach
from pipeline.data.passages import in_parquet
from pipeline.data.runs import Run, ranked
from pipeline.dense.index_files import open_index
from pipeline.dense.search_runs import bm25_run, dense_run
from pipeline.runtime.work import silent


def lists(corpus: Corpus) -> tuple[Run, np.ndarray]:
    """The fused lists, and the passages that the queries come from."""
    training, _ = generate_queries(corpus.collection, CONFIG)
    source_Q = np.array([query.passage for query in training])
    texts = [query.text for query in training]
    bm25_lists = bm25_run(corpus.bm25, texts, CONFIG.depth + 1, in_parquet(corpus.collection), silent)
    # A query is found as the first by its own passage in both lists.
    dense_lists = dense_run(corpus.vectors_ND[source_Q], open_index(corpus.index), CONFIG.depth + 1)
    assert (dense_lists.passage_R[dense_lists.rank_R == 1] == source_Q).all()
    assert (bm25_lists.passage_R == source_Q[bm25_lists.question_R]).sum() > 0.9 * len(source_Q)
    return teach(bm25_lists, dense_lists, source_Q, CONFIG.depth), source_Q


def test_the_source_is_no_candidate(corpus: Corpus) -> None:
    fused, source_Q = lists(corpus)
    assert not (fused.passage_R == source_Q[fused.question_R]).any()
    row_QK, score_QK = candidates(fused, len(source_Q), CONFIG.candidates)
    assert row_QK.shape == score_QK.shape == (40, 8)
    assert not (row_QK == source_Q[:, None]).any()
    assert (np.diff(score_QK, axis=1) <= 0).all()


def test_lists_are_the_same_again(corpus: Corpus) -> None:
    (first, _), (again, _) = lists(corpus), lists(corpus)
    assert (first.passage_R == again.passage_R).all()
    assert (first.score_R == again.score_R).all()


def test_candidates_are_as_many_as_the_shortest_list_has() -> None:
    run = ranked(np.array([0, 0, 0, 1, 1]), np.arange(5), -np.arange(5.0))
    assert candidates(run, 2, 9)[0].tolist() == [[0, 1], [3, 4]]
    assert of_queries(run, 1, 2).question_R.tolist() == [0, 0]
