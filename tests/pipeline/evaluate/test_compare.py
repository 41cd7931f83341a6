"""Comparison of two evaluations."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import InputError
from pipeline.evaluate.compare import Change, ComparedPair, Pair, changes, compare_systems, questions_of, read_figures
from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.per_query import measure_rows


def evaluated(folder: Path, **systems: dict[str, float]) -> Path:
    """An artifact with these figures for every measure."""
    folder.mkdir()
    tables = [
        measure_rows("test", name, [*figures], {q: [figure] * len(MEASURES) for q, figure in figures.items()}, {})
        for name, figures in systems.items()
    ]
    pq.write_table(pa.concat_tables(tables), folder / "per_query.parquet")
    return folder


def compare(a: Path, b: Path, *pairs: Pair) -> list[ComparedPair]:
    of_a, of_b = (read_figures(folder, "test", "RR@10") for folder in (a, b))
    shared = sorted(questions_of(of_a) & questions_of(of_b))
    assert shared == ["q", "r", "s"]
    return compare_systems(of_a, of_b, shared, pairs, "randomisation", 1000, 1)


def changed(a: Path, b: Path, pair: Pair, number: int = 5) -> list[Change]:
    return changes(*(read_figures(folder, "test", "RR@10") for folder in (a, b)), ["q", "r", "s"], pair, number)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    a = evaluated(tmp_path / "a", bm25={"q": 0.5, "r": 0.5, "s": 1.0, "gone": 1.0}, stage1=dict.fromkeys("qrs", 0.25))
    b = evaluated(
        tmp_path / "b",
        bm25={"s": 1.0, "r": 0.5, "q": 0.5, "new": 0.0},
        stage1={"q": 0.5, "r": 0.25, "s": 0.0},
        stage2={"q": 1.0, "r": 0.5, "s": 0.25},
    )
    return a, b


def test_rows_are_b_minus_a_over_the_questions_of_both(two):
    same, crossed, best = compare(*two, ("bm25", "bm25"), ("stage1", "stage1"), ("stage1", "stage2"))
    assert (same.a, same.b, same.mean, same.low, same.high, same.p, same.ties) == (
        0.666667, 0.666667, 0.0, 0.0, 0.0, 1.0, 3
    )  # fmt: skip
    assert (crossed.mean, crossed.wins, crossed.ties, crossed.losses) == (0.0, 1, 1, 1)
    assert (best.a, best.b, best.mean) == (0.25, 0.583333, 0.333333)
    assert (best.wins, best.ties, best.losses) == (2, 1, 0)
    assert (best.p, best.p_holm) == (0.5, 1.0)  # of eight signs four are as far from zero; three rows
    assert best.low < best.mean < best.high


def test_the_greatest_changes_come_first(two):
    assert changed(*two, ("stage1", "stage2")) == [Change("q", 0.25, 1.0), Change("r", 0.25, 0.5)]
    assert changed(*two, ("stage1", "stage2"), number=1) == [Change("q", 0.25, 1.0)]
    assert [x.query_id for x in changed(*two, ("stage1", "stage1"))] == ["q", "s"]


def test_an_unknown_measure_is_reported_in_one_line(two):
    with pytest.raises(InputError, match=r"^--measure MRR: unknown measure; known are RR@10, "):
        read_figures(two[0], "test", "MRR")


def test_questions_without_a_value_of_the_measure_are_left_out(tmp_path):
    rows = measure_rows("test", "bm25", ["q", "r"], {"q": [0.5] * len(MEASURES)}, {"r": [0.0, 1.0, 1.0]})
    pq.write_table(rows, tmp_path / "per_query.parquet")
    assert read_figures(tmp_path, "test", "RR@10") == {"bm25": {"q": 0.5}}
    assert read_figures(tmp_path, "test", "hits@20") == {"bm25": {"r": 1.0}}
