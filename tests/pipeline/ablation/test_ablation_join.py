"""Joining the tables of parts of an ablation that were built separately."""

import json
import re
import shutil
from pathlib import Path

import pytest
from ablation_parts import PLACES, ROWS, MakePart, damaged

from pipeline.ablation import files as ablation_files
from pipeline.ablation.join import join_folders

pytestmark = pytest.mark.usefixtures("pictures_are_not_drawn")


def check_same(out: Path, whole: Path) -> None:
    """All files, byte for byte."""
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file()) == files
    for name in files:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name


def test_rows_that_were_trained_separately_give_the_same_table(
    first: Path, others: Path, whole: Path, tmp_path: Path
) -> None:
    """Copies of only the data files are enough."""
    for folder in (first, others):
        (tmp_path / folder.parent.name).mkdir()
        for name in ablation_files.FILES:
            shutil.copy(folder / name, tmp_path / folder.parent.name)
    parts = [tmp_path / folder.parent.name for folder in (first, others)]
    config = join_folders(parts, tmp_path / "new" / "out", None)
    assert [cell.row for cell in config.cells] == [row for row, *_ in PLACES]
    check_same(tmp_path / "new" / "out", whole)


@pytest.mark.parametrize("part", [lambda place: place[1] == 10, lambda place: place[2] == 1], ids=["sizes", "seeds"])
def test_sizes_and_seeds_may_be_trained_separately_too(make: MakePart, whole: Path, tmp_path: Path, part) -> None:
    join_folders([make(part), make(lambda place: not part(place))], tmp_path / "out", None)
    check_same(tmp_path / "out", whole)


def test_rows_of_different_seeds_keep_their_curves(make: MakePart, tmp_path: Path) -> None:
    parts = [make(lambda place, only=only: place == only) for only in (("plain", None, 1), ("good", None, 2))]
    for n, ordered in enumerate((parts, parts[::-1])):
        join_folders(ordered, tmp_path / str(n), None)
        alone = [curves for part in ordered for curves in json.loads((part / "curves.json").read_text())]
        assert json.loads((tmp_path / str(n) / "curves.json").read_text()) == alone
        assert None not in alone


@pytest.mark.parametrize("with_cuts", ["both", "first", "second", "neither"])
def test_parts_without_the_lengths_of_cut_lists_are_joined_too(
    first: Path, others: Path, tmp_path: Path, with_cuts: str
) -> None:
    """Earlier versions wrote such parts."""
    parts = {"first": first, "second": others}
    for name, part in parts.items():
        parts[name] = damaged(part, tmp_path / name, cut if with_cuts in ("both", name) else without_cuts)
    join_folders([*parts.values()], tmp_path / "out", None)
    text = (tmp_path / "out/table.md").read_text()
    rows = {"both": ROWS, "first": ROWS[:1], "second": ROWS[1:], "neither": ()}[with_cuts]
    assert ("no list is longer than 7; RR@10 is RR@7 there." in text) == bool(rows)
    table = json.loads((tmp_path / "out/table.json").read_text())
    assert {figure["row"] for figure in table if figure.get("cut_at") == 7} == {*rows, *(["BM25"] if rows else [])}


def cut(whole: dict) -> None:
    for run in (run for runs in whole["runs"] for run in runs):
        run["cut_at"] = 7
    whole["first_stage"]["cut_at"] = {"dev": 7, "test": 7}


def without_cuts(whole: dict) -> None:
    for part in (whole["first_stage"], *(run for runs in whole["runs"] for run in runs)):
        part.pop("cut_at", None)


def test_joins_can_be_joined(make: MakePart, first: Path, whole: Path, tmp_path: Path) -> None:
    good, learned = (make(lambda place, row=row: place[0] == row) for row in ROWS[1:])
    join_folders([first, good], tmp_path / "two", None)
    join_folders([tmp_path / "two", learned], tmp_path / "three", None)
    check_same(tmp_path / "three", whole)


def test_saved_figures_can_be_joined_as_a_part(first: Path, others: Path, whole: Path, tmp_path: Path) -> None:
    """Alone and with other parts."""
    all_of_it, some = tmp_path / "all.parquet", tmp_path / "some.parquet"
    join_folders([first, others], tmp_path / "both", None, all_of_it)
    join_folders([all_of_it], tmp_path / "again", None)
    check_same(tmp_path / "again", whole)
    join_folders([first], tmp_path / "one", None, some)
    join_folders([some, others], tmp_path / "joined", None, tmp_path / "equal.parquet")
    check_same(tmp_path / "joined", whole)
    assert (tmp_path / "equal.parquet").read_bytes() == all_of_it.read_bytes()


def test_the_lengths_of_cut_lists_are_saved(first: Path, tmp_path: Path) -> None:
    part = damaged(first, tmp_path / "part", cut)
    join_folders([part], tmp_path / "out", None, tmp_path / "kept.parquet")
    join_folders([tmp_path / "kept.parquet"], tmp_path / "again", None)
    check_same(tmp_path / "again", tmp_path / "out")


def test_rows_are_in_the_requested_order_and_against_any_of_them(first: Path, others: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()  # an empty folder is accepted
    config = join_folders([others, first], tmp_path / "out", "learned")
    assert list(dict.fromkeys(cell.row for cell in config.cells)) == ["good", "learned", "plain"]
    tests = json.loads((tmp_path / "out/tests.json").read_text())
    assert {(t["row"], t["reference"]) for t in tests} == {("good", "learned"), ("plain", "learned")}
    join_folders([others, first], tmp_path / "again", None)
    assert "differs from good" in (tmp_path / "again/table.md").read_text()


def test_missing_cells_are_dashes(first: Path, make: MakePart, tmp_path: Path) -> None:
    small = make(lambda place: place == ("good", 10, 2))
    join_folders([first, small], tmp_path / "out", None)
    text = (tmp_path / "out/table.md").read_text()
    assert re.match(r"\| not fine-tuned \| BM25 negatives, 10 \| BM25 negatives, all ", text.split("dev ", 1)[1])
    good = next(line.split(" | ") for line in text.splitlines() if line.startswith("| good "))
    assert [cell.startswith("–") for cell in good[1:]] == [False, *[False, True] * 3]
    assert "means over 1 to 2 seeds of fine-tuning" in text
    seeds = (tmp_path / "out/ablation.html").read_text().partition("<h2>Seeds</h2>")[2]
    assert "–" in seeds.partition("</table>")[0]
