"""The benchmarks' goals and the README's table."""

import json
import sys

import pytest

from benchmarks import __main__ as benchmarks


def test_the_readmes_table_is_that_of_the_results():
    assert benchmarks.table() in benchmarks.README.read_text()
    assert set(json.loads(benchmarks.RESULTS.read_text())) == set(benchmarks.GOALS) == set(benchmarks.rows())


@pytest.mark.parametrize(("key", "ratio", "missed"), [
    ("collate", 4.99, True), ("collate", 5.0, False), ("cache_cost", 1.26, True), ("cache_cost", 1.25, False),
])  # fmt: skip
def test_a_ratio_beyond_its_floor_fails(monkeypatch, capsys, key, ratio, missed):
    monkeypatch.setattr(benchmarks, "rows", lambda: {key: lambda: ratio})
    monkeypatch.setattr(sys, "argv", ["benchmarks", key])
    if missed:
        with pytest.raises(SystemExit, match=f"beyond the floor: {key}"):
            benchmarks.main()
    else:
        benchmarks.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {key: ratio}
