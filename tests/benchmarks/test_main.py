"""The benchmarks' goals and the tables of both READMEs."""

import json
import sys

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.serve import missed
from pipeline.runtime import bfloat16


def test_the_tables_match_the_results():
    assert benchmarks.table() in benchmarks.PAGE.read_text()
    assert benchmarks.headlines() in benchmarks.README.read_text()
    assert set(benchmarks.GOALS) == set(benchmarks.benchmark_rows())
    assert set(json.loads(benchmarks.RESULTS.read_text())) >= {key for key in benchmarks.GOALS if "bf16" not in key}


def test_bfloat16_is_visibly_skipped_where_the_processor_is_slow_with_it(monkeypatch, capsys):
    monkeypatch.setattr(bfloat16, "speedup", lambda: 0.5)
    monkeypatch.setattr(bfloat16, "processor", lambda: "A Processor")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "condenser_step_bf16"])
    benchmarks.main()
    out, err = capsys.readouterr()
    assert out == "{}\n"
    assert "condenser_step_bf16: skipped: A Processor multiplies bfloat16 0.50 times as fast as float32" in err


@pytest.mark.parametrize(("key", "ratio", "missed"), [
    ("collate", 4.99, True), ("collate", 5.0, False), ("cache_cost", 1.26, True), ("cache_cost", 1.25, False),
])  # fmt: skip
def test_a_ratio_beyond_its_floor_fails(monkeypatch, capsys, key, ratio, missed):
    monkeypatch.setattr(benchmarks, "benchmark_rows", lambda: {key: lambda: ratio})
    monkeypatch.setattr(sys, "argv", ["benchmarks", key])
    if missed:
        with pytest.raises(SystemExit, match=f"beyond the floor: {key}"):
            benchmarks.main()
    else:
        benchmarks.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {key: ratio}


def test_a_missed_goal_of_serving_is_reported():
    reached = {"search": {"milliseconds": 299.9}, "1 client": {"p50": 29.9, "errors": 0},
               "32 clients": {"seconds_for_300_answers": 0.999, "errors": 0}}  # fmt: skip
    assert missed(reached) == []
    assert missed({"2 clients": {"p50": 90.0, "errors": 5}}) == []  # no goal is set for these
    slow = {"search": {"milliseconds": 300.0}, "32 clients": {"seconds_for_300_answers": 1.1, "errors": 1}}
    assert missed(slow) == [
        "missed: 32 clients: errors 1, not below 1",
        "missed: 32 clients: seconds_for_300_answers 1.1, not below 1",
        "missed: search: milliseconds 300.0, not below 300",
    ]
