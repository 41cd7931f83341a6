import numpy as np
import pytest

from pipeline.pretrain.segments import pairs, sentences, usable
from pipeline.tokenization.token_files import Ragged

PASSAGES = [[3, 5, 4], [12], [], [6, 2], [2, 2, 2], [9, 9, 9], [1, 30]]
"""The tokens of each sentence of each passage."""


@pytest.fixture
def texts() -> Ragged:
    """Token i has the value i, so that each token shows its position."""
    lengths = [sum(passage) for passage in PASSAGES]
    starts = np.zeros(sum(lengths), bool)
    offsets = np.cumsum([0, *lengths])
    for offset, passage in zip(offsets[:-1], PASSAGES, strict=True):
        # The start of the first sentence is implied.
        starts[(offset + np.cumsum([0, *passage])[1:-1]).astype(int)] = True
    return Ragged(np.arange(sum(lengths)), offsets, np.ones_like(starts), starts)


def split(at_T: np.ndarray, length_S: np.ndarray) -> list[tuple[list[int], list[int]]]:
    parts = [x.tolist() for x in np.split(at_T, np.cumsum(length_S))[:-1]]
    return list(zip(parts[::2], parts[1::2], strict=True))


def test_sentences_of_the_tokens_that_are_read(texts):
    result = sentences(texts, np.array([5, 0, 2]), 11)
    assert result.passage_N.tolist() == [0, 0, 1, 1, 1]
    assert result.length_N.tolist() == [9, 2, 3, 5, 3]
    assert result.begin_N.tolist() == [38, 47, 0, 3, 8]


def test_passages_that_give_no_pair_are_counted(texts, monkeypatch):
    for at_once in (1 << 16, 2):
        monkeypatch.setattr("pipeline.pretrain.segments.AT_ONCE", at_once)
        result = usable(texts, 3, 20)
        assert result.row_P.tolist() == [0, 3, 5, 6]
        assert (result.one_sentence, result.no_segment) == (2, 1)
    assert usable(texts, 3, 9).row_P.tolist() == [0, 3, 6]  # only one sentence of passage 5 is read


@pytest.mark.parametrize("probability", [0.0, 0.9, 1.0])
def test_a_segment_is_a_sentence_of_its_passage(texts, probability):
    row_P, limit, longest = np.array([0, 3, 5, 6]), 20, 7
    ends_P = np.minimum(texts.offsets[row_P + 1], texts.offsets[row_P] + limit)
    removed, drawn = [], set()
    for step in range(200):
        split_pairs = split(*pairs(texts, row_P, 3, longest, limit, probability, 1, step))
        for row, end, (segment, passage) in zip(row_P.tolist(), ends_P.tolist(), split_pairs, strict=True):
            begin = int(texts.offsets[row])
            bounds = [*(begin + np.cumsum([0, *PASSAGES[row]])).tolist()]
            number = bounds.index(segment[0])
            sentence = list(range(segment[0], min(bounds[number + 1], end)))
            assert len(sentence) >= 3
            assert segment == sentence[:longest]
            whole = list(range(begin, end))
            rest = [i for i in whole if i not in sentence]
            assert rest
            assert passage in (whole, rest)
            removed.append(passage == rest)
            drawn.add((row, number))
    assert np.mean(removed) == pytest.approx(probability, abs=0.04)
    # Only 2 tokens of passage 5's third sentence are read.
    assert drawn == {(0, 0), (0, 1), (0, 2), (3, 0), (5, 0), (5, 1), (6, 1)}


def test_pairs_are_a_function_of_seed_step_and_passage(texts):
    def at(rows, seed, step):
        return split(*pairs(texts, np.array(rows), 3, 20, 20, 0.5, seed, step))

    assert at([0, 5], 1, 2) == [at([0], 1, 2)[0], at([5], 1, 2)[0]]
    assert len({str(at([5], 1, step)) for step in range(30)}) == 4
    assert {str(at([5], seed, 0)) for seed in range(30)} == {str(at([5], 1, step)) for step in range(30)}
