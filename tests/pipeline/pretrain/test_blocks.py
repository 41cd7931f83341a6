import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.pretrain.blocks import cut_documents

documents = st.lists(st.lists(st.integers(1, 40), max_size=12), max_size=6)  # sentence lengths


def flat(sentences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.array([i == 0 for document in sentences for n in document for i in range(n)], bool)
    return starts, np.cumsum([0, *(sum(document) for document in sentences)])


@settings(deadline=None)
@given(documents, st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 99))
def test_blocks_split_the_text_at_sentences(sentences, probability, seed):
    starts, offsets = flat(sentences)
    begin, length = cut_documents(starts, offsets, 16, probability, seed)
    covered = np.concatenate([np.arange(b, b + n) for b, n in zip(begin, length, strict=True)] or [np.array([], int)])
    assert np.array_equal(covered, np.arange(offsets[-1]))
    assert (length <= 16).all()
    document = np.searchsorted(offsets, begin, "right")
    assert np.array_equal(document, np.searchsorted(offsets, begin + length - 1, "right"))
    sentence_of = np.cumsum(starts)
    size = np.bincount(sentence_of, minlength=1)
    for b in begin:
        assert starts[b] or size[sentence_of[b]] > 16  # only a sentence beyond the limit is cut


def test_packing_is_greedy():
    starts, offsets = flat([[5, 5, 5, 3], [40], [2]])
    begin, length = cut_documents(starts, offsets, 16, 0.0, 0)
    assert begin.tolist() == [0, 15, 18, 34, 50, 58]
    assert length.tolist() == [15, 3, 16, 16, 8, 2]


def test_short_targets_are_as_frequent_as_configured():
    starts, offsets = flat([[1] * 160_000])
    _, length = cut_documents(starts, offsets, 16, 0.1, 3)
    short = length[:-1] < 16
    assert short.mean() == pytest.approx(0.1 * 15 / 16, abs=0.01)
    assert set(length) == set(range(1, 17))
    assert np.array_equal(cut_documents(starts, offsets, 16, 0.1, 3)[1], length)
    assert not np.array_equal(cut_documents(starts, offsets, 16, 0.1, 4)[1], length)
