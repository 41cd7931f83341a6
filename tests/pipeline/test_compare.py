"""Two evaluations side by side."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.compare import Change, Compared, compare
from pipeline.errors import InputError
from pipeline.measures import MEASURES
from pipeline.per_query import measure_rows


def evaluated(folder: Path, **systems: dict[str, float]) -> Path:
    """An artifact with these figures, whatever the measure."""
    folder.mkdir()
    tables = [
        measure_rows("test", name, [*figures], np.repeat(np.array([*figures.values()])[:, None], len(MEASURES), 1))
        for name, figures in systems.items()
    ]
    pq.write_table(pa.concat_tables(tables), folder / "per_query.parquet")
    return folder


def call(a: Path, b: Path, *pairs: tuple[str, str], measure: str = "RR@10", changes: int = 5) -> Compared:
    return compare(a, b, "test", pairs, measure, changes, "randomisation", 1000, 1)


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
    found = call(*two, ("bm25", "bm25"), ("stage1", "stage1"), ("stage1", "stage2"))
    assert (found.questions, found.questions_of_a_alone, found.questions_of_b_alone) == (3, 1, 1)
    same, changed, best = found.rows.values()
    assert (same.a, same.b, same.mean, same.low, same.high, same.p, same.ties) == (
        pytest.approx(2 / 3, abs=1e-6), pytest.approx(2 / 3, abs=1e-6), 0.0, 0.0, 0.0, 1.0, 3
    )  # fmt: skip
    assert (changed.mean, changed.wins, changed.ties, changed.losses) == (0.0, 1, 1, 1)
    assert (best.a, best.b) == (0.25, pytest.approx(1.75 / 3, abs=1e-6))
    assert (best.wins, best.ties, best.losses) == (2, 1, 0)
    assert (best.p, best.p_holm) == (0.5, 1.0)  # all eight signs: four are as far from zero; three rows
    assert best.low < best.mean < best.high


def test_the_last_rows_greatest_changes_come_first(two):
    assert call(*two, ("stage1", "stage2")).changes == [Change("q", 0.25, 1.0), Change("r", 0.25, 0.5)]
    assert call(*two, ("stage1", "stage2"), changes=1).changes == [Change("q", 0.25, 1.0)]
    assert [x.query_id for x in call(*two, ("stage1", "stage1")).changes] == ["q", "s"]


def test_what_cannot_be_compared_is_one_line(two, tmp_path):
    with pytest.raises(InputError, match=r"a: no system 'stage2' in test; there are bm25, stage1$"):
        call(*two, ("stage2", "stage2"))
    with pytest.raises(InputError, match=r"^--measure MRR: there are RR@10, "):
        call(*two, ("bm25", "bm25"), measure="MRR")
    other = evaluated(tmp_path / "other", bm25={"elsewhere": 1.0})
    with pytest.raises(InputError, match="no question of test stands in both"):
        call(two[0], other, ("bm25", "bm25"))
