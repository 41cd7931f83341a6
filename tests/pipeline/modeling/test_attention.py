"""Packed attention against the attention of each sequence alone."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import varlen

from pipeline.modeling import attention, packing
from pipeline.modeling.attention import attend
from pipeline.modeling.packing import one_group, packed_rows, real_keys

LENGTHS = np.array([3, 5, 5, 5, 9])


@pytest.mark.parametrize(
    "counts", [[3, 5, 5, 5, 9], [1, 1, 1, 1, 1], [2, 0, 4, 1, 3], [0, 2, 2, 2, 0], [0, 0, 0, 0, 0]]
)
def test_rows_see_only_their_own_sequence(counts):
    torch.manual_seed(0)
    every = packed_rows(LENGTHS, LENGTHS, None, "cpu")
    edges = np.cumsum([0, *LENGTHS])
    at_R = np.concatenate([edge + np.arange(count) for edge, count in zip(edges[:-1], counts, strict=True)])
    queries = packed_rows(LENGTHS, np.array(counts), at_R, "cpu")
    assert (queries.size, queries.longest) == (sum(counts), max(counts))
    assert queries.scores == int(np.dot(counts, LENGTHS))
    query_RD = torch.randn(len(at_R), 8, requires_grad=True)
    key_TD, value_TD = torch.randn(2, 27, 8).requires_grad_().unbind()
    context_RD = attend(query_RD, key_TD, value_TD, queries, every, 2, 0.0)
    expected, first = [], 0
    for edge, length, count in zip(edges[:-1], LENGTHS, counts, strict=True):
        query, key, value = (
            x.unflatten(1, (2, 4)).transpose(0, 1)
            for x in (query_RD[first : first + count], key_TD[edge : edge + length], value_TD[edge : edge + length])
        )
        weights = (query @ key.transpose(1, 2) / 2.0).softmax(2)
        expected.append((weights @ value).transpose(0, 1).flatten(1))
        first += count
    torch.testing.assert_close(context_RD, torch.cat(expected))
    if at_R.size:
        upstream = torch.randn_like(context_RD)
        inputs = (query_RD, key_TD, value_TD)
        ours = torch.autograd.grad(context_RD, inputs, upstream)
        for x, y in zip(ours, torch.autograd.grad(torch.cat(expected), inputs, upstream), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_masks_hide_keys():
    every = packed_rows(LENGTHS, LENGTHS, None, "cpu")
    x_TD = torch.randn(27, 8)
    masks = [torch.eye(length, dtype=torch.bool).expand(n, 1, -1, -1) for n, length in every.groups]
    torch.testing.assert_close(attend(x_TD, x_TD, x_TD, every, every, 2, 0.0, masks), x_TD)  # each sees itself


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attention_by_products_is_that_of_torch(masked, dropout):
    """Also its dropout: a CPU draws the same numbers in both."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8).requires_grad_().unbind()
    mask = (torch.rand(2, 1, 5, 5) < 0.5) | torch.eye(5, dtype=torch.bool) if masked else None
    upstream, results = torch.randn(2, 4, 5, 8), []
    for function in (F.scaled_dot_product_attention, attention.by_products):
        torch.manual_seed(1)
        context = function(query, key, value, mask, dropout)
        results.append((context, *torch.autograd.grad(context, (query, key, value), upstream)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("masked", ["no", "bias", "hidden"])
@pytest.mark.parametrize(
    ("longest", "few", "in_float32"), [(9, 0, False), (8, 0, True), (9, 10**6, True)], ids=["products", "long", "few"]
)
def test_a_cpu_attends_in_bfloat16_where_that_is_faster(monkeypatch, masked, longest, few, in_float32):
    """The scores of long sequences also need too much memory."""
    torch.manual_seed(0)
    every = packed_rows(LENGTHS, LENGTHS, None, "cpu")
    projected = torch.randn(3, 27, 8).unbind()
    masks = None
    if masked == "bias":
        masks = [torch.rand(n, 1, length, length) for n, length in every.groups]
    if masked == "hidden":
        masks = [torch.ones(length, length).tril().bool().expand(n, 1, -1, -1) for n, length in every.groups]
    expected_RD = attend(*projected, every, every, 2, 0.0, masks)
    kernel = Mock(wraps=F.scaled_dot_product_attention)
    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    monkeypatch.setattr(attention, "LONG", longest)
    monkeypatch.setattr(attention, "FEW_SCORES", few)
    context_RD = attend(*(x.bfloat16() for x in projected), every, every, 2, 0.0, masks)
    assert context_RD.dtype == torch.bfloat16
    assert {call.args[0].dtype for call in kernel.call_args_list} == ({torch.float32} if in_float32 else set())
    torch.testing.assert_close(context_RD.float(), expected_RD, rtol=0.02, atol=0.02)


def test_attention_in_one_group_is_that_in_groups_of_equal_length():
    """A GPU has one call for all sequences where its kernel cannot be used."""
    every = packed_rows(LENGTHS, LENGTHS, None, "cpu")
    wanted = packed_rows(LENGTHS, np.array([0, 2, 0, 3, 1]), np.array([4, 5, 14, 16, 17, 20]), "cpu")
    key_TD, value_TD, query_TD = torch.randn(3, 27, 8).requires_grad_().unbind()
    seen = (torch.arange(every.longest) < torch.from_numpy(LENGTHS)[:, None])[:, None, None]
    for rows, query_RD in ((every, query_TD), (wanted, query_TD[wanted.at_R])):
        expected_RD = attend(query_RD, key_TD, value_TD, rows, every, 2, 0.0)
        bare = [one._replace(pads=(None,) * len(one.groups)) for one in (rows, every)]  # as on a GPU
        ours_RD = attend(query_RD, key_TD, value_TD, *map(one_group, bare), 2, 0.0, [seen])
        torch.testing.assert_close(ours_RD, expected_RD)
        upstream, inputs = torch.randn_like(ours_RD), (query_RD, key_TD, value_TD)
        results = [torch.autograd.grad(x, inputs, upstream, retain_graph=True) for x in (ours_RD, expected_RD)]
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("most", [0, 16, 240])
def test_attention_of_bucketed_groups_is_that_of_groups_of_equal_length(monkeypatch, most):
    monkeypatch.setattr(packing, "PADDED_SCORES", most)
    counts, at_R = np.array([0, 2, 0, 3, 1]), np.array([4, 5, 14, 16, 17, 20])
    key_TD, value_TD, query_TD = torch.randn(3, 27, 8).requires_grad_().unbind()
    every, bucketed = (packed_rows(LENGTHS, LENGTHS, None, "cpu", bucket) for bucket in (False, True))
    wanted, bucketed_wanted = (packed_rows(LENGTHS, counts, at_R, "cpu", bucket) for bucket in (False, True))
    assert [len(bucketed.groups)] == [len(bucketed_wanted.groups)] == [{0: 3, 16: 2, 240: 1}[most]]
    for rows, ours, query_RD in ((every, bucketed, query_TD), (wanted, bucketed_wanted, query_TD[at_R])):
        expected_RD = attend(query_RD, key_TD, value_TD, rows, every, 2, 0.0)
        ours_RD = attend(query_RD, key_TD, value_TD, ours, bucketed, 2, 0.0, real_keys(bucketed))
        torch.testing.assert_close(ours_RD, expected_RD)
        upstream, inputs = torch.randn_like(ours_RD), (query_RD, key_TD, value_TD)
        results = [torch.autograd.grad(x, inputs, upstream, retain_graph=True) for x in (ours_RD, expected_RD)]
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("size", [8, 26, 4])
def test_the_kernel_gets_heads_of_a_multiple_of_8(monkeypatch, size):
    """It refuses others. TinyBERT's have 26."""
    every = packed_rows(LENGTHS, LENGTHS, None, "cpu")
    query_RD, key_TD, value_TD = torch.randn(3, 27, 2 * size).requires_grad_().unbind()

    def varlen_attn(query, key, value, from_edges, to_edges, most_queries, most_keys, scale, window_size):
        assert query.shape[2] % 8 == 0
        parts = (x.tensor_split(every.edges[1:-1].tolist()) for x in (query, key, value))
        return torch.cat(
            [
                F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in one), scale=scale).transpose(0, 1)
                for one in zip(*parts, strict=True)
            ]
        )

    expected_RD = attend(query_RD, key_TD, value_TD, every, every, 2, 0.0)
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    monkeypatch.setattr(attention, "has_kernel", lambda device: True)
    torch.testing.assert_close(attend(query_RD, key_TD, value_TD, every, every, 2, 0.0), expected_RD)
