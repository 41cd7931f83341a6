"""Ids are compared by their hashes."""

from array import array

import pytest

from pipeline.data.ids import contains, forbid_repeats, hash_id, sort
from pipeline.errors import InputError


def test_equal_hashes_of_different_ids_are_not_duplicates(monkeypatch):
    """A collision only costs a second pass over the ids."""
    monkeypatch.setattr("pipeline.data.ids.hash_id", lambda text: 7)
    hashes = sort(_array([7, 7]))
    forbid_repeats("id", hashes, [("line 1", "a"), ("line 2", "b")])
    with pytest.raises(InputError, match="line 3: id 'a' is already at line 1"):
        forbid_repeats("id", hashes, [("line 1", "a"), ("line 2", "b"), ("line 3", "a")])


def test_membership_by_hash():
    known = sort(_array([hash_id(f"id{i}") for i in range(1000)]))
    assert contains(known, ["id0", "id999", "id1000", ""]).tolist() == [True, True, False, False]
    assert contains(sort(_array([])), ["id0"]).tolist() == [False]


def _array(values: list[int]):
    return array("Q", values)
