from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.counter_rng import integers, uniform
from pipeline.pretrain.masking import mask
from pipeline.tokenization.token_files import Specials

SPECIALS = Specials(vocab_size=60, pad=0, unk=1, cls=2, sep=3, mask=4)


@st.composite
def texts(draw):
    lengths = draw(st.lists(st.integers(1, 90), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    total = sum(lengths)
    ids = rng.integers(5, 60, total)
    ids[rng.random(total) < draw(st.sampled_from([0.0, 0.1]))] = SPECIALS.unk
    return ids, rng.random(total) < 0.7, np.array(lengths), rng.integers(0, 10**9, len(lengths))


def words(starts: np.ndarray) -> list[slice]:
    """Words of one sequence; its first token begins one."""
    edges = [0, *(1 + np.flatnonzero(starts[1:])), len(starts)]
    return [slice(a, b) for a, b in pairwise(edges)]


@settings(deadline=None)
@given(texts(), st.integers(0, 1000))
def test_whole_words_are_masked_within_the_share_and_special_tokens_never(text, step):
    ids, starts, lengths, rows = text
    corrupted, masked = mask(ids, starts, lengths, rows, 0.15, 7, step, SPECIALS)
    assert np.array_equal(corrupted[~masked], ids[~masked])
    assert not np.isin(corrupted[masked], [0, 1, 2, 3]).any()
    ends = np.cumsum(lengths)
    for begin, end in zip(ends - lengths, ends, strict=True):
        sequence, chosen = words(starts[begin:end]), masked[begin:end]
        special = [bool(np.isin(ids[begin:end][word], SPECIALS.ids).any()) for word in sequence]
        for word, is_special in zip(sequence, special, strict=True):
            assert chosen[word].all() or not chosen[word].any()
            assert not (is_special and chosen[word].any())
        longest = max(word.stop - word.start for word in sequence)
        assert chosen.any() or all(special)
        assert chosen.sum() <= max(0.15 * (end - begin) + longest / 2, longest)


@settings(deadline=None)
@given(texts(), st.integers(0, 1000))
def test_a_sequence_is_masked_the_same_alone_and_in_a_batch(text, step):
    ids, starts, lengths, rows = text
    together = mask(ids, starts, lengths, rows, 0.15, 7, step, SPECIALS)
    ends = np.cumsum(lengths)
    for i, (begin, end) in enumerate(zip(ends - lengths, ends, strict=True)):
        part = slice(begin, end)
        alone = mask(ids[part], starts[part], lengths[i : i + 1], rows[i : i + 1], 0.15, 7, step, SPECIALS)
        assert np.array_equal(alone[0], together[0][part])
        assert np.array_equal(alone[1], together[1][part])


def test_shares_are_15_80_10_10():
    rng = np.random.default_rng(0)
    lengths = np.full(4000, 100)
    ids, starts = rng.integers(5, 60, lengths.sum()), rng.random(lengths.sum()) < 0.7
    corrupted, masked = mask(ids, starts, lengths, np.arange(4000), 0.15, 1, 2, SPECIALS)
    assert abs(masked.mean() - 0.15) < 0.003
    kept, replaced = corrupted[masked] == ids[masked], corrupted[masked] == SPECIALS.mask
    assert abs(replaced.mean() - 0.8) < 0.01
    assert abs(kept.mean() - (0.1 + 0.1 / 55)) < 0.01  # a random token is sometimes the true one
    other = corrupted[masked][~kept & ~replaced]
    counts = np.bincount(other, minlength=60)
    assert counts[:5].sum() == 0
    assert counts[5:].min() > 0.6 * counts[5:].mean()
    # Long words are masked as often as short ones.
    word = np.cumsum(starts) - 1
    size = np.bincount(word)[word]
    shares = [masked[size == n].mean() for n in (1, 2, 3)]
    assert max(shares) - min(shares) < 0.01


def test_each_step_and_seed_has_its_own_mask():
    ids, lengths = np.arange(5, 55), np.array([50])
    masks = {
        mask(ids, np.ones(50, bool), lengths, np.array([row]), 0.15, seed, step, SPECIALS)[1].tobytes()
        for seed in range(3)
        for step in range(3)
        for row in range(3)
    }
    assert len(masks) == 27


def test_draws_are_uniform_and_independent_of_shape():
    x = uniform(1, np.arange(1000)[:, None], np.arange(100))
    assert x.shape == (1000, 100)
    assert x[17, 5] == uniform(1, 17, 5)[0]
    histogram = np.histogram(x, bins=20, range=(0, 1))[0]
    assert abs(histogram - 5000).max() < 300
    assert abs(np.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(x[:, :-1].ravel(), x[:, 1:].ravel())[0, 1]) < 0.02
    drawn = integers(np.array([1, 7]), 3, np.arange(5000)[:, None])
    assert set(drawn[:, 0]) == {0}
    assert set(drawn[:, 1]) == set(range(7))
