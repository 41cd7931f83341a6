"""The choices of an ablation on the command line."""

from dataclasses import replace
from pathlib import Path

import pytest
from three_rows import ROWS, own

from flows.ablations.ablation import Ablation, cells
from flows.ablations.choice import Choice, apply_choice, overwritten_settings
from flows.ablations.file import load
from flows.ablations.shared_nodes import merge_cells
from pipeline.errors import InputError


def test_a_setting_that_every_cell_overwrites_is_refused(tmp_path: Path) -> None:
    """Otherwise it would be ignored without a message."""
    ablation = own(tmp_path, ROWS.replace("  BERT: null", "  BERT: [condenser.budget=4 steps, stage1.epochs=2]"))
    rows = Choice(set=["condenser.budget=9 steps"], rows=["BERT"], reference="BERT")
    with pytest.raises(
        InputError, match=r"--set condenser\.budget=9 steps: changes nothing, as every cell has its own"
    ):
        apply_choice(ablation, rows)
    with pytest.raises(InputError, match=r"its own condenser\.budget, by its row"):
        apply_choice(ablation, replace(rows, set=["condenser={budget: 9 steps}"]))
    more = apply_choice(ablation, replace(rows, set=["condenser={budget: 9 steps, mask_fraction: 0.3}"]))
    assert [cell.recipe.condenser.mask_fraction for cell in cells(more[0], ["BERT"])] == [0.3, 0.3]
    others = apply_choice(ablation, Choice(set=["condenser.budget=9 steps"]))
    message = "--set condenser.budget=9 steps: changes nothing in BERT, whose row or size sets it"
    assert overwritten_settings(*others, ["condenser.budget=9 steps", "stage2.epochs=1"]) == [message]
    assert {cell.recipe.condenser.budget for cell in cells(*others)} == {"4 steps", "9 steps"}
    sized = ablation.model_copy(update={"by_size": {10: ["stage1.epochs=3"]}, "sizes": [10, None]})
    with pytest.raises(InputError, match=r"stage1\.epochs=9: changes nothing"):
        apply_choice(sized, Choice(set=["stage1.epochs=9"], sizes=[10]))
    both = cells(*apply_choice(sized, Choice(set=["stage1.epochs=9"], rows=["Condenser"], reference="Condenser")))
    assert {(cell.size, cell.recipe.stage1.epochs) for cell in both} == {(10, 3), (None, 9)}
    (message,) = overwritten_settings(sized, ["Condenser", "BERT"], ["stage1.epochs=9"])
    assert "nothing in Condenser (10), BERT (10), BERT (all), whose" in message


def test_a_setting_inside_a_section_that_a_row_replaces_is_reported() -> None:
    row, setting = "Condenser continued", "pretraining.parts=[{reader: beir, folder: mine}]"
    rows = ["Condenser", row]
    (message,) = overwritten_settings(load("ladder-pydocs"), rows, [setting])
    assert f"changes nothing in {row}, whose row" in message
    (message,) = overwritten_settings(load("ladder-pydocs"), rows, ["pretraining=null"])
    assert row in message
    assert overwritten_settings(load("ladder-pydocs"), rows, ["pretrainings.parts=[]"]) == []


def test_wrong_choices_are_reported(three: Ablation) -> None:
    for choice, message in (
        ({"rows": ["coCondensr"]}, r"no row 'coCondensr' \(did you mean coCondenser"),
        ({"rows": ["Condenser"]}, "the reference coCondenser is not among the rows"),
        ({"sizes": [0]}, r"--sizes 0: a number of training questions from 1 to 1,000,000,000, or all"),
        ({"sizes": [10**20]}, r"--sizes 10{20}: a number of training questions from 1 to"),
        ({"negatives": ["none"]}, r"--negatives: none trains nothing"),
        ({"negatives": ["mind"]}, r"--negatives mind: one of none, bm25, mined, fusion \(did you mean mined\?\)"),
        ({"negatives": ["bm25", "bm25"]}, r"--negatives: one appears twice"),
        ({"seeds": [3, 3]}, r"--seeds: one appears twice"),
        ({"seeds": [-3]}, r"--seeds -3: 0 or more"),
        ({"seeds": [2**63 - 1]}, r"--seeds 9223372036854775807: .* below 9,223,372,036,854,775,807"),
        ({"reference": "none"}, "no row 'none'"),
        ({"reference": ""}, "no row ''"),
    ):
        with pytest.raises(InputError, match=message):
            apply_choice(three, Choice(**choice))
    settings, rows = apply_choice(three, Choice(set=["stage2.seed=1"]))
    with pytest.raises(
        InputError, match=r"row Condenser: --set stage2\.seed=1: in an ablation seeds give stage2\.seed"
    ):
        merge_cells(settings, rows)
    settings, rows = apply_choice(three, Choice(set=["condenser.stepps=1"]))
    with pytest.raises(InputError, match=r"row Condenser: --set condenser\.stepps=1: .*unknown field"):
        merge_cells(settings, rows)
