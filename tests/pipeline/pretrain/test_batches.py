from itertools import pairwise

import numpy as np
import pytest
import torch
from machines import make_machine

from pipeline.errors import InputError
from pipeline.modeling.packing import Batch, share
from pipeline.pretrain import masking, sampling
from pipeline.runtime import ranks
from pipeline.tokenization.token_files import Ragged, Specials

SPECIALS = Specials(vocab_size=60, pad=0, unk=1, cls=2, sep=3, mask=4)


def texts() -> Ragged:
    rng = np.random.default_rng(0)
    return Ragged(
        tokens=rng.integers(5, 60, 900).astype(np.uint16),
        offsets=np.array([0, 900]),
        word_starts=rng.random(900) < 0.7,
        sentence_starts=None,
    )


LENGTHS = np.array([9, 4, 17, 4, 30, 9, 12])
BEGINS = np.array([0, 800, 40, 60, 100, 300, 400])


def make(chunk: int | None, budget: int = 1000) -> Batch:
    machine = make_machine(gradient_cache_chunk=chunk, token_budget=budget)
    return masking.masked_batch(texts(), BEGINS, LENGTHS, np.arange(7) + 50, 0.15, 1, 2, SPECIALS, machine, "cpu")


@pytest.mark.parametrize(
    ("chunk", "budget"), [(1, 1000), (3, 1000), (7, 1000), (99, 1000), (None, 1000), (None, 40), (None, 1)]
)
def test_chunks_hold_every_sequence_once(chunk, budget):
    batch, data = make(chunk, budget), texts()
    assert sorted(torch.cat([c.row_B for c in batch.chunks]).tolist()) == list(range(7))
    assert batch.sequences == 7
    assert batch.tokens == 85 + 2 * 7 == sum(len(c.ids_T) for c in batch.chunks)
    assert batch.masked == sum(len(c.label_M) for c in batch.chunks)
    for c in batch.chunks:
        restored = c.ids_T.index_copy(0, c.masked.at_R, c.label_M)
        edges = c.every.edges.tolist()
        assert c.cls.at_R.tolist() == edges[:-1]
        for row, (first, last) in zip(c.row_B.tolist(), pairwise(edges), strict=True):
            text = data.tokens[BEGINS[row] : BEGINS[row] + LENGTHS[row]].tolist()
            assert restored[first:last].tolist() == [2, *text, 3]
            assert c.position_T[first:last].tolist() == list(range(last - first))
        assert sum(n * length for n, length in c.every.groups) == len(c.ids_T) + c.every.padding


def test_chunks_by_tokens_have_about_equal_sizes():
    length_S = np.random.default_rng(0).integers(4, 128, 300)
    sizes = [length_S[rows].sum() for _, rows in share(length_S, None, 2000)]
    assert len(sizes) == -(-length_S.sum() // 2000)
    assert max(sizes) <= 2000 + 128
    assert max(sizes) - min(sizes) < 2 * 128


def test_ranks_share_the_chunks(monkeypatch):
    whole = {c.number: c for c in make(2).chunks}
    shared = []
    for rank in range(3):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(ranks, "world", lambda: 3)
        shared += make(2).chunks
    assert sorted(c.number for c in shared) == sorted(whole)
    for c in shared:
        assert torch.equal(c.ids_T, whole[c.number].ids_T)
        assert torch.equal(c.row_B, whole[c.number].row_B)


def test_every_rank_has_the_same_number_of_chunks(monkeypatch):
    monkeypatch.setattr(ranks, "world", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        assert len(share(np.full(60, 20), None, 300)) == 2


def shares(length_S: np.ndarray, chunk: int | None, budget: int, world: int) -> list[list[list[int]]]:
    """The rows of each chunk of each rank."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "world", lambda: world)
        found = []
        for rank in range(world):
            patch.setattr(ranks, "rank", lambda rank=rank: rank)
            found.append([row_B.tolist() for _, row_B in share(length_S, chunk, budget)])
        return found


@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("chunk", [7, 64, 256, 1000])
def test_a_chunk_size_leaves_no_rank_without_work(chunk, world):
    """As for NQ: 128 questions with 2 passages each, with a chunk size that is more than a rank's share."""
    rng = np.random.default_rng(0)
    length_S = np.concatenate([rng.integers(8, 16, 128), rng.integers(120, 200, 256)])
    tokens = [sum(length_S[rows].sum() for rows in chunks) for chunks in shares(length_S, chunk, 2000, world)]
    assert sum(tokens) == length_S.sum()
    if chunk >= len(length_S) / world or chunk == 7:
        assert max(tokens) < 1.1 * np.mean(tokens)
    assert min(tokens) > 0


def test_chunks_of_a_size_are_the_same_for_each_number_of_ranks():
    """So dropout, which the chunk's number seeds, is the same."""
    length_S = np.random.default_rng(0).integers(4, 128, 90)
    one = sorted(shares(length_S, 15, 1000, 1)[0])
    assert len(one) == 6
    assert max(length_S[rows].sum() for rows in one) - min(length_S[rows].sum() for rows in one) < 2 * 128
    for world in (2, 3, 6):
        assert sorted(rows for chunks in shares(length_S, 15, 1000, world) for rows in chunks) == one


def test_few_long_sequences_are_shared_out_one_by_one():
    """Runs of the sorted sequences would give the fullest of 8 ranks 16 % more than the mean."""
    length_S = np.concatenate([np.full(8, 10), np.linspace(60, 128, 48).astype(int)])
    lots = shares(length_S, None, 32_768, 8)
    tokens = [length_S[rows].sum() for (rows,) in lots]
    assert max(tokens) < 1.1 * np.mean(tokens)
    assert sorted(row for (rows,) in lots for row in rows) == list(range(56))
    assert all((np.diff(length_S[rows]) >= 0).all() for (rows,) in lots)


def test_an_epoch_has_every_item_at_most_once():
    per_epoch, rows = sampling.sampler(np.ones(23, int), 5, 0, "x.batch_documents")
    assert per_epoch == 4
    epochs = [[rows(4 * epoch + i).tolist() for i in range(4)] for epoch in range(2)]
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [5] * 4
        assert len({row for batch in epoch for row in batch}) == 20
    assert epochs[0] != epochs[1]
    assert [rows(i).tolist() for i in range(4)] == epochs[0]  # back to an earlier step: the same


def test_batches_by_tokens_have_about_equal_sizes():
    size_N = np.random.default_rng(1).integers(10, 60, 400)
    per_epoch, rows = sampling.sampler(size_N, 500, 0, "x.batch_tokens")
    epoch = [rows(i) for i in range(per_epoch)]
    sizes = [int(size_N[row_S].sum()) for row_S in epoch]
    assert per_epoch == size_N.sum() // 500
    assert all(440 < size < 560 for size in sizes)
    assert len({row for i in range(per_epoch) for row in rows(i).tolist()}) == sum(
        len(rows(i)) for i in range(per_epoch)
    )


def test_a_collection_below_one_batch_is_refused():
    with pytest.raises(InputError, match=r"^x.batch_documents: 2,048 is more than the whole collection holds \(12"):
        sampling.sampler(np.ones(12, int), 2048, 0, "x.batch_documents")


def test_a_collection_without_text_is_reported():
    with pytest.raises(InputError, match="the collection has no text to train on"):
        sampling.sampler(np.ones(0, int), 2048, 0, "x.batch_documents")
