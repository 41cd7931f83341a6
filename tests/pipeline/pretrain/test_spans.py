import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.pretrain.spans import long_enough, long_passages, spans, spans_of_passages


@given(
    st.lists(st.integers(32, 500), min_size=1, max_size=20),
    st.integers(1, 200),
    st.integers(16, 200),
    st.integers(0, 100),
    st.integers(0, 10**6),
)
def test_two_spans_never_overlap(lengths, span_min, span_max, seed, step):
    length_D = np.array(lengths)
    begin_D = np.cumsum(length_D) - length_D
    begin_S, length_S = spans(begin_D, length_D, np.arange(len(lengths)), span_min, span_max, seed, step)
    longest_S = np.repeat(np.minimum(span_max, length_D // 2), 2)
    assert (length_S >= np.minimum(span_min, longest_S)).all()
    assert (length_S <= longest_S).all()
    end_S = begin_S + length_S
    assert (begin_S[0::2] >= begin_D).all()
    assert (end_S[0::2] <= begin_S[1::2]).all()
    assert (end_S[1::2] <= begin_D + length_D).all()
    assert long_enough(length_D, 16).all()


def test_lengths_are_equal_if_shortest_and_longest_are_equal():
    _, length_S = spans(np.zeros(3, int), np.array([40, 70, 500]), np.arange(3), 128, 128, 1, 2)
    assert length_S.tolist() == [20, 20, 35, 35, 128, 128]


def test_random_lengths_are_independent():
    D = 20_000
    _, length_S = spans(np.zeros(D, int), np.full(D, 100), np.arange(D), 6, 20, 5, 6)
    assert set(length_S.tolist()) == set(range(6, 21))
    assert abs(np.corrcoef(length_S[0::2], length_S[1::2])[0, 1]) < 0.02


def test_gap_and_position_are_uniform():
    """A document of 10 tokens with spans of 3: gaps of 0 to 4, and every position that a gap allows."""
    D = 20_000
    begin_S, length_S = spans(np.zeros(D, int), np.full(D, 10), np.arange(D), 3, 3, 5, 6)
    gap = begin_S[1::2] - begin_S[0::2] - 3
    counts = np.bincount(gap, minlength=5)
    assert len(counts) == 5
    assert abs(counts / D - 0.2).max() < 0.015
    places = np.bincount(begin_S[0::2][gap == 1], minlength=4) / counts[1]
    assert abs(places - 0.25).max() < 0.03
    assert (length_S == 3).all()


def test_spans_depend_only_on_seed_step_and_document():
    begin, length, document = np.array([0, 100, 300]), np.array([100, 200, 90]), np.array([4, 9, 2])
    whole = spans(begin, length, document, 8, 32, 1, 2)[0].reshape(3, 2)
    assert np.array_equal(spans(begin[1:2], length[1:2], document[1:2], 8, 32, 1, 2)[0], whole[1])
    assert not np.array_equal(spans(begin, length, document, 8, 32, 1, 3)[0].reshape(3, 2), whole)


def test_short_documents_are_distinguished():
    assert long_enough(np.array([0, 31, 32, 400]), 16).tolist() == [False, False, True, True]


def test_spans_come_from_different_passages():
    rng = np.random.default_rng(0)
    offsets = np.cumsum([0, *rng.integers(2, 60, 400)])
    doc_offsets = np.sort(np.concatenate([[0, 400], rng.choice(np.arange(1, 400), 120, replace=False)]))
    passages = long_passages(offsets, doc_offsets, 8)
    document_D = rng.permutation(len(doc_offsets) - 1)
    several_D, begin_S, length_S = spans_of_passages(passages, document_D, 8, 20, 3, 4)
    long_P = np.diff(offsets) >= 8
    fits_D = np.add.reduceat(long_P, doc_offsets[:-1])[document_D] >= 2
    assert np.array_equal(several_D, fits_D)
    first_S = np.searchsorted(offsets, begin_S, side="right") - 1
    last_S = np.searchsorted(offsets, begin_S + length_S - 1, side="right") - 1
    assert np.array_equal(first_S, last_S)  # within one passage
    assert (first_S[::2] != first_S[1::2]).all()
    document_S = np.searchsorted(doc_offsets, first_S, side="right") - 1
    assert np.array_equal(document_S, document_D[several_D].repeat(2))
    assert (length_S >= 8).all()
    assert (length_S <= np.minimum(20, np.diff(offsets)[first_S])).all()
    again = spans_of_passages(passages, document_D[several_D][:3], 8, 20, 3, 4)
    assert np.array_equal(again[1], begin_S[:6])
    assert not np.array_equal(spans_of_passages(passages, document_D, 8, 20, 3, 5)[1], begin_S)
