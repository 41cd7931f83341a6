"""The gain that each column of an ablation brings to its rows."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ablated import QUESTIONS, SIZES, STRENGTH, config, make_inputs, places, undrawn, values, wide, work

from pipeline.ablation import files
from pipeline.ablation.ablation import ablation
from pipeline.ablation.gains import gains
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.evaluate.significance.bootstrap import interval, resampled_means
from pipeline.evaluate.significance.paired import holm, p_values

STEPS = [
    ("bm25", "stage1", "none", "pretrained"),
    ("mined", "stage2", "bm25", "stage1"),
    ("fusion", "fusion", None, "bm25"),
]


@pytest.fixture(scope="module", autouse=True)
def _pictures_are_not_drawn() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_inputs(tmp_path_factory.mktemp("ablation"))


@pytest.fixture(scope="module")
def wide_table(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("widely") / "out"
    ablation(wide(), **inputs, work=work(out))
    return out


def mean_of(inputs: dict[str, Path], row: str, size: int | None, system: str) -> np.ndarray:
    """[Q, M] on dev, mean over the seeds; before fine-tuning: of the one cell that has it."""
    cells = [n for n, place in enumerate(places()) if place[:2] == (row, size)]
    if system == "pretrained":
        cells = [places().index((row, None, 1))]
    tables = [[values(inputs, n, system, measure) for measure in MEASURES] for n in cells]
    return np.mean(tables, axis=0).T


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("negatives", "system", "earlier", "before"), STEPS)
def test_columns_are_tested_against_the_one_before(
    wide_table: Path, inputs: dict[str, Path], size: int | None, negatives: str, system: str, earlier: str, before: str
) -> None:
    """BM25 joined with the model is tested against BM25."""
    gains = json.loads((wide_table / "gains.json").read_text())
    d_QRM = np.stack(
        [mean_of(inputs, row, size, system) - mean_of(inputs, row, size, before) for row in STRENGTH], axis=1
    )
    d_QC = d_QRM.reshape(QUESTIONS, -1)
    p_RM = p_values(d_QC, "randomisation", 500, 7).reshape(d_QRM.shape[1:])
    low_C, high_C = interval(resampled_means(d_QC, 500, 7))
    for m, measure in enumerate(MEASURES):
        place = {"negatives": negatives, "size": size, "split": "dev", "measure": measure}
        of_place = [g for g in gains if {name: g[name] for name in place} == place]
        assert [g["row"] for g in of_place] == [*STRENGTH]
        assert [g["reference"] for g in of_place] == ([*STRENGTH] if earlier else ["BM25"] * len(STRENGTH))
        assert {g["reference_negatives"] for g in of_place} == {earlier}
        assert [g["mean"] for g in of_place] == pytest.approx(d_QRM[:, :, m].mean(axis=0), abs=2e-6)
        assert [g["low"] for g in of_place] == pytest.approx(low_C.reshape(p_RM.shape)[:, m], abs=2e-6)
        assert [g["high"] for g in of_place] == pytest.approx(high_C.reshape(p_RM.shape)[:, m], abs=2e-6)
        assert [g["p"] for g in of_place] == pytest.approx(p_RM[:, m], abs=2e-6)
        assert [g["p_holm"] for g in of_place] == pytest.approx(holm(p_RM[:, m : m + 1])[:, 0], abs=2e-6)
        assert [g["losses"] for g in of_place] == (d_QRM[:, :, m] < -1e-9).sum(axis=0).tolist()


def test_every_column_of_every_kind_of_measures_is_tested(wide_table: Path) -> None:
    gains = json.loads((wide_table / "gains.json").read_text())
    assert len(gains) == len(STRENGTH) * len(SIZES) * len(STEPS) * (2 * len(MEASURES) + len(HITS))
    page = (wide_table / "ablation.html").read_text()
    steps = {"BM25 negatives": "not fine-tuned", "+ mined": "BM25 negatives", "+ BM25": "BM25 alone"}
    assert re.findall("<h3>([^<]*), against ([^<]*)</h3>", page) == [
        (f"{after}, {size}", before) for after, before in steps.items() for size in ("10", "all")
    ]
    assert "paired randomisation, p by Holm over 3 comparisons" in page


def test_a_choice_on_dev_is_reported_and_tested_on_test(wide_table: Path) -> None:
    page = (wide_table / "ablation.html").read_text()
    assert "<th>MRR@10, test</th>" in page.partition("What each step brings")[2]
    assert "<th>MRR@10, dev</th>" in page.partition("What each step brings")[0]
    note = "+ BM25: where dev chose the way of fusion, its figures on dev flatter it."
    assert note in page
    assert (wide_table / "table.md").read_text().rstrip().endswith(note)


def test_the_reference_is_the_nearest_earlier_column(inputs: dict[str, Path], tmp_path: Path) -> None:
    kinds = ("none", "mined")
    cells = [c.model_copy(update={"systems": {k: c.systems[k] for k in kinds if k in c.systems}}) for c in wide().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    gains = json.loads((tmp_path / "out/gains.json").read_text())
    assert {(g["negatives"], g["reference_negatives"]) for g in gains} == {("mined", "none")}
    cells = [cell.model_copy(update={"systems": {"mined": "stage2"}}) for cell in cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "alone"))
    assert json.loads((tmp_path / "alone/gains.json").read_text()) == []
    assert "What each step brings" not in (tmp_path / "alone/ablation.html").read_text()


def test_columns_are_compared_over_the_seeds_of_both(wide_table: Path) -> None:
    """Joined parts may have one column with more seeds than another."""
    data = files.read_data(wide_table)
    without = [
        replace(cell, runs={place: run for place, run in cell.runs.items() if one.seed == 2 or place[1] != "bm25"})
        for one, cell in zip(data.config.cells, data.cells, strict=True)
    ]
    alone = [
        replace(cell, runs=cell.runs if one.seed == 2 else {})
        for one, cell in zip(data.config.cells, data.cells, strict=True)
    ]
    mined = [[g for g in gains(replace(data, cells=cells)) if g["negatives"] == "mined"] for cells in (without, alone)]
    assert mined[0] == mined[1] != []


def test_bm25_that_differs_among_cells_is_no_reference(wide_table: Path) -> None:
    rows = gains(replace(files.read_data(wide_table), first_stage={}))
    assert {g["negatives"] for g in rows} == {"bm25", "mined"}
